"""mlx-lm: a prompt without tokens is found out inside generation; in the server that ends the generation thread."""

from __future__ import annotations

from pathlib import Path

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """An empty prompt, alone and in a batch: both raise an untyped error from within generation."""
    import importlib

    import mlx.core as mx
    from mlx_lm.utils import load_model

    generate = importlib.import_module("mlx_lm.generate")
    loaded, _ = load_model(Path(model))
    seen = []
    try:
        next(generate.generate_step(mx.array([], dtype=mx.int32), loaded, max_tokens=1))
    except ValueError as error:
        seen.append(f"generate_step: ValueError {error}")
    batch = generate.BatchGenerator(loaded)
    try:
        batch.insert([[]], [1])
        batch.next()
    except ValueError as error:
        seen.append(f"BatchGenerator: ValueError {error}")
    return Shown(len(seen) == 2, "; ".join(seen) or "no error")


FAULT = Fault(
    oracle="mlx-lm",
    where="generate.py generate_step and BatchGenerator.insert_segments, called outside any try by the server",
    what="an empty prompt raises inside the generation thread",
    ours="EmptyPrompt (typed), raised by the call that submits the request",
    probe=probe,
)
