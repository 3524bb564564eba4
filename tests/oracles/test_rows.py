"""Rows of unequal length beside each other, in every architecture: each equals its solo run (bundled BLAS).

`make test-matrix` holds the rows of every module against mlx-lm; against the engine's own solo runs most of them wait
for `make test-nightly`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from engine import Request, SamplingParams, load
from oracles.batch_suite import batch_cells
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.faults.batch_crashes import MODULES as CRASHING
from oracles.parity import BAD, CellResult, run_cells
from oracles.recipe import Form, find_recipe, recipes

LENGTHS = (1, 5, 12, 23)  # one token, below and above the windows (8) and chunks (7) of the tiny models
# The ten whose shorter rows mlx-lm's batch gets wrong (oracles/faults), and one of each kind of module.
QUICK = (
    "mamba", "jamba", "bailing_moe_linear", "rwkv7", "recurrent_gemma", "baichuan_m1", "longcat_flash_ngram",
    "nemotron_h", "afm7", "olmo_hybrid", "gemma3n", "qwen3_5_moe", "kimi_linear", "gpt_oss", "deepseek_v32", "exaone4",
)  # fmt: skip
REFUSED = ("bitnet", "muse_spark", "olmo")  # engine/graph/families/refused.py
REST = sorted(name for name in recipes() if "-" not in name and name not in QUICK and name not in REFUSED)


def judge(results: Sequence[CellResult]) -> Counter[str]:
    """No cell differs or failed; how many there are of each status."""
    assert [result.as_dict() for result in results if result.status in BAD] == []
    return Counter(result.status for result in results)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


def rows_equal_solo(folder: Path) -> None:
    rng = random.Random(7)
    with load(folder, prefill_chunk=7, drive="manual") as engine:
        vocab = int(engine.logits([2, 3]).shape[-1])
        asked = [
            Request(
                prompt=tuple(rng.randrange(2, vocab) for _ in range(length)),
                sampling=SamplingParams(max_tokens=8, ignore_eos=True),
                taps=("logits",),
                delivery="collect",
            )
            for length in LENGTHS
        ]
        alone = [engine.submit(request).result() for request in asked]
        handles = [engine.submit(request) for request in asked]
        beside = [handle.result() for handle in handles]
    assert len({g.tokens for g in alone}) > 1
    for length, one, other in zip(LENGTHS, alone, beside, strict=True):
        assert np.array_equal(np.array(one.taps["logits"]), np.array(other.taps["logits"])), length
        assert one.tokens == other.tokens


@pytest.mark.parametrize("name", QUICK)
def test_rows_equal_their_solo_runs(worker: Worker, name: str) -> None:
    rows_equal_solo(worker.make(find_recipe(name), Form()))


@pytest.mark.nightly
@pytest.mark.parametrize("name", REST)
def test_rows_equal_their_solo_runs_in_the_other_modules(worker: Worker, name: str) -> None:
    rows_equal_solo(worker.make(find_recipe(name), Form()))


def test_a_batch_equals_mlx_lms_at_the_same_composition() -> None:
    assert judge(list(run_cells(batch_cells(quick=True), blas="bundled"))) == {"equal": 12}


@pytest.mark.matrix
def test_a_batch_of_every_module_equals_mlx_lms() -> None:
    """The composition that holds the others' cases; all three: `frontier parity --suite batch`. What mlx-lm cannot
    batch is in the register ("batch-crashes")."""
    cells = [cell for cell in batch_cells(quick=False) if cell.name.endswith(" staggered")]
    counts = judge(list(run_cells(cells, blas="bundled")))
    assert counts == {"equal": len(cells) - len(CRASHING), "not run": len(CRASHING)}
