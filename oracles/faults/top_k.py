"""mlx-lm: top_k at or above the vocabulary size raises when the first token is sampled."""

from __future__ import annotations

import json
from pathlib import Path

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """top_k equal to the vocabulary size, which filters nothing, at temperature 1."""
    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    vocab = int(json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    logprobs = mx.zeros((1, vocab))
    try:
        sampler = make_sampler(temp=1.0, top_k=vocab)
        mx.eval(sampler(logprobs))
    except ValueError as error:
        return Shown(True, f"top_k={vocab} with {vocab} tokens: ValueError {error}")
    return Shown(False, f"top_k={vocab} with {vocab} tokens: a token was sampled")


FAULT = Fault(
    oracle="mlx-lm",
    where="sample_utils.py apply_top_k, reached at the first token",
    what="top_k >= vocabulary size raises at the first token (in the server it ends the generation thread)",
    ours="InvalidValue (typed) when the request is submitted",
    probe=probe,
)
