"""mlx-lm: in a batch of unequal prompts the shorter row of ten architectures is computed wrongly."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oracles.faults.entry import Fault, Shown
from oracles.recipe import Form, find_recipe

MODULES = (
    "mamba",
    "jamba",
    "bailing_moe_linear",
    "rwkv7",
    "recurrent_gemma",
    "baichuan_m1",
    "longcat_flash_ngram",
    "nemotron_h",
    "afm7",
    "olmo_hybrid",
)
# A module that does this right, so that the probe shows that it can tell.
RIGHT = "llama"
LONG, SHORT, STEPS = 19, 6, 4
# Rows of one batch round differently; a wrong row is off by far more.
ROUNDING = 1e-3


def largest_gap(module: str) -> float:
    """max |diff| of the shorter row's first log-probabilities, beside a longer row and alone, in mlx-lm's batch."""
    from mlx_lm.utils import load_model

    from oracles.build_adapter import build

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / module
        build(find_recipe(module), Form(), folder)
        model, _ = load_model(folder, strict=True)
        prompts = [[2 + (7 * i + 3 * n) % 60 for i in range(n)] for n in (LONG, SHORT)]
        beside, alone = _first_rows(model, prompts, 1), _first_rows(model, prompts[1:], 0)
        return float(np.abs(np.array(beside) - np.array(alone)).max())


def _first_rows(model: Any, prompts: Sequence[list[int]], row: int) -> Any:
    """The log-probabilities [V] of one row's first token."""
    from mlx_lm.generate import BatchGenerator

    batch = BatchGenerator(model, max_tokens=STEPS)
    uid = batch.insert([list(prompt) for prompt in prompts])[row]
    try:
        while True:
            for answer in batch.next_generated():
                if answer.uid == uid:
                    return answer.logprobs
    finally:
        batch.close()


def probe(model: str) -> Shown:
    """Every module's shorter row, and that of one that is right."""
    gaps = {module: largest_gap(module) for module in (*MODULES, RIGHT)}
    right = gaps.pop(RIGHT)
    mended = [module for module, gap in gaps.items() if gap <= ROUNDING]
    listed = ", ".join(f"{module} {gap:.2g}" for module, gap in gaps.items())
    told = f"; no longer: {', '.join(mended)}" if mended else ""
    return Shown(
        not mended and right <= ROUNDING, f"{SHORT} tokens beside {LONG}: {listed} ({RIGHT}: {right:.2g}){told}"
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models with recurrences, convolutions, n-grams or masks of their own: padding enters the shorter row",
    what="log-probabilities of the shorter row depend on the longer one beside it",
    ours="each row equals its solo run, whatever runs beside it (tests/oracles/test_rows.py)",
    probe=probe,
)
