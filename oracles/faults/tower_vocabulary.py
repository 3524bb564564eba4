"""mlx-lm: gemma3 and gemma4 overwrite the text tower's vocabulary size by a default of the wrapper."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

VOCABULARY = 32


def probe(model: str) -> Shown:
    """What vocab_size a text tower gets whose config has it under text_config, where transformers writes it."""
    from mlx_lm.models import gemma3, gemma4

    got = []
    for module in (gemma3, gemma4):
        arguments = module.ModelArgs.from_dict({"model_type": "gemma", "text_config": {"vocab_size": VOCABULARY}})
        got.append(arguments.text_config["vocab_size"])
    text = f"text_config.vocab_size {VOCABULARY} becomes {got[0]} in gemma3 and {got[1]} in gemma4"
    return Shown(any(size != VOCABULARY for size in got), text)


FAULT = Fault(
    oracle="mlx-lm",
    where="models/gemma3.py and gemma4.py ModelArgs.__post_init__: text_config['vocab_size'] = self.vocab_size",
    what="a model with an enlarged or a smaller vocabulary in text_config cannot be loaded: shapes differ",
    ours="a vocab_size at the top first, as in mlx-lm; else the text tower's own; else the default",
    probe=probe,
)
