"""Rows that lie as in mlx-lm's BatchGenerator: the same forwards in the same order, of the same shapes, under the same
masks, and logits without a difference.

On a GPU bits depend on all of that (`batch_mode=composition`), and so they do with OpenBLAS, where the mode is asked
for by name; with the bundled BLAS they do not, so that there the layout is put in place of the fastest one, and what is
compared is which forwards there are.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.backend import openblas_path
from oracles.client import Worker, child_environment
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe, recipes

CHUNK = 7
LIMITS = (8, 5, 10, 3, 7, 9, 4, 6)  # tokens that each row makes
# name -> (prompt tokens, the turn before which each row joins); one token, and beside windows (8) and chunks.
SCHEDULES = {
    "equal": ((12, 12, 12), (0, 0, 0)),
    "ragged": ((5, 23, 12, 9), (0, 0, 0, 0)),
    "staggered": ((9, 23, 1, 16, 5, 12, 3, 8), (0, 0, 3, 4, 6, 6, 9, 12)),
    "late": ((23, 9), (0, 2)),
    "lone": ((9,), (0,)),
}
QUICK = ("llama", "gemma3_text", "mamba2", "qwen3_next")  # no window, rings, states, both
# A BLAS is chosen before MLX is loaded.
START = "import runpy, sys; from engine.backend import blas; blas(); del sys.argv[0]; runpy.run_path(sys.argv[0])"
SCRIPT = Path(__file__).with_name("batch_forwards.py")
REFUSED = ("bitnet", "muse_spark", "olmo")  # engine/graph/families/refused.py
REST = sorted(name for name in recipes() if "-" not in name and name not in QUICK and name not in REFUSED)


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


def forwards(builder: Worker, name: str, blas: str, layout: str) -> dict[str, dict[str, Any]]:
    """What the script says of each schedule; skips a model that cannot lie so, which none of `QUICK` is."""
    rng = random.Random(3)
    folder = builder.make(find_recipe(name), Form())
    lines = [
        json.dumps(
            {
                "prompts": [[rng.randrange(2, 60) for _ in range(length)] for length in lengths],
                "joins": joins,
                "limits": LIMITS[: len(lengths)],
            }
        )
        for lengths, joins in SCHEDULES.values()
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", START, str(SCRIPT), str(folder), str(CHUNK), layout],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env=child_environment(StackConfig(stack="mlx-lm", model="", compile=False, blas=blas)),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    head, *told = map(json.loads, done.stdout.splitlines())
    if head["without"] and name not in QUICK:
        pytest.skip(f"not run: {head['without']}")
    return dict(zip(SCHEDULES, told, strict=True))


def judge(found: dict[str, dict[str, Any]]) -> None:
    for schedule, told in found.items():
        assert told["first"] == [], schedule
        assert set(told["gaps"]) == {0.0}, schedule
        assert told["forwards"] > max(LIMITS[: len(SCHEDULES[schedule][0])]), schedule


@pytest.mark.parametrize("name", QUICK)
def test_forwards_are_those_of_the_oracle_s_batch(name: str, builder: Worker) -> None:
    judge(forwards(builder, name, "bundled", "batched"))


@pytest.mark.matrix
@pytest.mark.parametrize("name", REST)
def test_forwards_of_every_module(name: str, builder: Worker) -> None:
    judge(forwards(builder, name, "bundled", "batched"))


@pytest.mark.matrix
@pytest.mark.parametrize("name", QUICK)
def test_with_openblas_the_mode_gives_the_oracle_s_bits(name: str, builder: Worker) -> None:
    """There the bits of a product depend on how many rows it has, so that other rows beside would show."""
    if openblas_path() is None:
        pytest.skip("not run: this machine has no OpenBLAS")
    judge(forwards(builder, name, "openblas", ""))
