"""mlx-lm: a bias for a token id outside the vocabulary is accepted and does nothing.

The scatter behind it checks no bounds on the CPU: an id just past the end lands in slack, a far one kills the process.
"""

from __future__ import annotations

from pathlib import Path

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """A huge bias on the first id that does not exist: the logits come back unchanged and nothing is said."""
    import mlx.core as mx
    from mlx_lm.sample_utils import make_logits_processors
    from mlx_lm.utils import load_model

    loaded, _ = load_model(Path(model))
    tokens = mx.array([5, 6, 7])
    logits = loaded(tokens[None])[:, -1, :]
    vocab = int(logits.shape[-1])
    (processor,) = make_logits_processors(logit_bias={vocab: 1000.0})
    biased = processor(tokens, logits)
    same = bool(mx.array_equal(biased, logits).item())
    return Shown(same, f"logit_bias {{{vocab}: 1000}} with {vocab} tokens: logits unchanged, no error")


FAULT = Fault(
    oracle="mlx-lm",
    where="sample_utils.py make_logits_processors: the index of the scatter is not checked",
    what="logit_bias for an unknown token id is ignored",
    ours="InvalidValue (typed) when the request is submitted",
    probe=probe,
)
