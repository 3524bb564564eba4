"""Staggered admission: every finished row of a random schedule equals its solo run, bit for bit (bundled BLAS)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from schedules import Judge

from engine import Request
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
def judge() -> Iterator[Callable[..., Judge]]:
    judges: dict[tuple[str, ...], Judge] = {}
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        folders: dict[str, Path] = {name: worker.make(find_recipe(name), Form()) for name, _ in CASES}

    def find(name: str, kv: str, **config: Any) -> Judge:
        key = name, kv, *map(str, config.values())
        if key not in judges:
            judges[key] = Judge(folders[name], kv=mixed_plan({0: 8, 1: 4}) if kv == "mixed" else kv, **config)
        return judges[key]

    yield find
    for each in judges.values():
        each.close()


@pytest.mark.parametrize(("name", "kv"), CASES)
def test_every_row_equals_its_solo_run(judge: Callable[..., Judge], name: str, kv: str) -> None:
    assert sum(judge(name, kv).run(seed) for seed in range(QUICK)) > QUICK


@pytest.mark.parametrize(
    ("batch_mode", "rows"), [("composition", "padded"), ("invariant", "together"), ("fast", "padded")]
)
def test_every_row_equals_its_solo_run_in_each_layout(judge: Callable[..., Judge], batch_mode: str, rows: str) -> None:
    """Chunks that hold several prompts: those of one turn share a forward where rows are padded."""
    found = judge("qwen3", "native", batch_mode=batch_mode, prefill_chunk=64)
    assert found.solo.submit(Request(prompt=(2, 3))).result().plan.rows == rows
    assert sum(found.run(seed) for seed in range(QUICK)) > QUICK
    assert bool(found.shared) == (rows == "padded")


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kv"), [case for case in CASES if case[0] != "llama4"])
def test_every_row_equals_its_solo_run_at_length_in_other_layouts(
    judge: Callable[..., Judge], name: str, kv: str
) -> None:
    for config in ({"batch_mode": "fast", "prefill_chunk": 64}, {"batch_mode": "invariant"}):
        assert sum(judge(name, kv, **config).run(seed) for seed in range(3 * QUICK)) > QUICK


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kv"), CASES)
def test_every_row_equals_its_solo_run_at_length(judge: Callable[..., Judge], name: str, kv: str) -> None:
    assert sum(judge(name, kv).run(seed) for seed in range(QUICK, QUICK + NIGHTLY)) > NIGHTLY


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "qwen3_next"])
def test_every_row_of_a_compiled_step_equals_its_solo_run(judge: Callable[..., Judge], name: str) -> None:
    """Each row alone runs compiled too; tests/oracles/test_compiled.py holds that against the step that is not."""
    assert sum(judge(name, "native", compile="step").run(seed) for seed in range(QUICK)) > QUICK
