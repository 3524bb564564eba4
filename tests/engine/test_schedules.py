"""Staggered admission: every finished row of a random schedule equals its solo run, bit for bit (bundled BLAS)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from schedules import Judge

from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.kv_suite import mixed_plan
from oracles.recipe import Form, find_recipe

# (model, scheme): every kind of cache, every kind of scheme, rows together and one by one.
CASES = (
    ("qwen3", "native"),
    ("qwen3", "kv8:g32"),
    ("qwen3", "kv4:g32:start=10"),
    ("qwen3", "kv8/4:g32:on-write"),
    ("qwen3", "mixed"),
    ("gemma3_text", "native"),
    ("gemma3_text", "kv8:g32"),
    ("qwen3_moe", "native"),
    ("llama4", "native"),
    ("deepseek_v3", "native"),
    ("qwen3_next", "native"),
    ("mamba2", "native"),
    ("falcon_h1", "kv8:g32"),
    ("recurrent_gemma", "native"),
    ("lfm2", "native"),
)
QUICK, NIGHTLY = 20, 667


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[[str, str], Judge]]:
    judges: dict[tuple[str, str], Judge] = {}
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        folders: dict[str, Path] = {name: worker.make(find_recipe(name), Form()) for name, _ in CASES}

    def find(name: str, kv: str) -> Judge:
        if (name, kv) not in judges:
            judges[name, kv] = Judge(folders[name], kv=mixed_plan({0: 8, 1: 4}) if kv == "mixed" else kv)
        return judges[name, kv]

    yield find
    for each in judges.values():
        each.close()


@pytest.mark.parametrize(("name", "kv"), CASES)
def test_every_row_equals_its_solo_run(judge: Callable[[str, str], Judge], name: str, kv: str) -> None:
    assert sum(judge(name, kv).run(seed) for seed in range(QUICK)) > QUICK


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kv"), CASES)
def test_every_row_equals_its_solo_run_at_length(judge: Callable[[str, str], Judge], name: str, kv: str) -> None:
    assert sum(judge(name, kv).run(seed) for seed in range(QUICK, QUICK + NIGHTLY)) > NIGHTLY
