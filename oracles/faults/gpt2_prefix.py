"""mlx-lm: a gpt2 checkpoint whose names begin with "transformer." (distilgpt2 and most fine-tunes) does not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "gpt2",
    "n_ctx": 8,
    "n_embd": 8,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 8,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 16,
}


def probe(model: str) -> Shown:
    """Give a gpt2 its own parameters under the names that transformers saves a language model with."""
    from mlx.utils import tree_flatten
    from mlx_lm.models.gpt2 import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    own = dict(tree_flatten(built.parameters(), destination={}))
    saved = {f"transformer.{name.removeprefix('model.')}": value for name, value in own.items()}
    try:
        built.load_weights(list(built.sanitize(saved).items()), strict=True)
    except ValueError as error:
        return Shown(True, f"transformer.h.0...: ValueError: {str(error).splitlines()[0]}")
    return Shown(False, "names below transformer. load")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/gpt2.py sanitize: only the bare names of the first gpt2 release (h.0.attn...) are known",
    what="a gpt2 that transformers saved with its head is refused for unknown keys",
    ours="both spellings load; a stored copy of the tied head is left aside",
    probe=probe,
)
