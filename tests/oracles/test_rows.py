"""Rows of unequal length beside each other, in every architecture: each equals its solo run (bundled BLAS)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import Request, SamplingParams, load
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe, recipes

LENGTHS = (1, 5, 12, 23)  # one token, below and above the windows (8) and chunks (7) of the tiny models
# The nine whose shorter rows mlx-lm's batch gets wrong (oracles/faults), and one of each kind of module.
QUICK = (
    "mamba", "jamba", "bailing_moe_linear", "rwkv7", "recurrent_gemma", "baichuan_m1", "longcat_flash_ngram",
    "nemotron_h", "afm7", "gemma3n", "qwen3_5_moe", "kimi_linear", "gpt_oss", "deepseek_v32", "exaone4",
)  # fmt: skip
REFUSED = ("bitnet", "muse_spark", "olmo")  # engine/graph/families/refused.py
REST = sorted(name for name in recipes() if "-" not in name and name not in QUICK and name not in REFUSED)


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


@pytest.mark.matrix
@pytest.mark.parametrize("name", REST)
def test_rows_equal_their_solo_runs_in_the_other_modules(worker: Worker, name: str) -> None:
    rows_equal_solo(worker.make(find_recipe(name), Form()))
