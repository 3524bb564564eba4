"""Bad input of an eval: a typed result, the item marked, the run goes on, and nothing that was kept is lost."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import archive_path
from evals import rows, sandbox
from evals.encoding import as_text
from evals.run import Asked, ItemResult, describe, run_task
from evals.sources import BFCL_EVAL
from evals.task import Answer, Generation, Item, Question, Task
from evals.tasks import TASKS
from evals.tasks.humaneval import HumanEval
from evals.tasks.synthetic import Copy
from lab import cli
from lab.eval_ledger import StoreLedger, find_runs, read_items
from lab.store import Store
from oracles.characters import character_model

PROMPT = 'def twice(n):\n    """Two times n."""\n'
RIGHT = "    return 2 * n\n"
# What a model may write, and what its verdict says; no file of this machine is named.
ESCAPES = {
    "fork bomb": ("    import os\n    while True:\n        os.fork()\n", "failed: PermissionError"),
    "processes": ("    import subprocess\n    return subprocess.run(['/bin/true'])\n", "failed: PermissionError"),
    "file write": ("    open({outside!r}, 'w').write('out')\n    return 2 * n\n", "failed: PermissionError"),
    "network": ("    import socket\n    socket.create_connection(('127.0.0.1', 9), 1)\n", "failed: PermissionError"),
    "infinite loop": ("    while True:\n        pass\n", "timed out: after 0.5 s"),
    "huge allocation": ("    return bytes(1 << 40)\n", "memory: more than"),
    "quiet end": ("    import os\n    os._exit(0)\n", "failed: ended before its tests did"),
    "no program": ("    return (\n", "failed: SyntaxError"),
}


class Writes:
    """A backend that answers with planted texts, in the order of the items."""

    template_sha256 = ""

    def __init__(self, texts: Sequence[str]) -> None:
        self.document: Mapping[str, Any] = {"stack": "writes", "texts": list(texts)}
        self._texts = list(texts)

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> Asked:
        answer = Answer(text=self._texts.pop(0), finish_reason="stop", prompt_tokens=9, tokens=3)
        return Asked(prompt=as_text(question), answer=answer)

    def close(self) -> None:
        """Nothing to end."""


def quiet(_label: str, _done: int, _total: int | None) -> None:
    """No bars."""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Task]:
    """HumanEval with so many items of one function, and half a second for each."""
    monkeypatch.setattr(sandbox, "run", functools.partial(sandbox.run, seconds=0.5))
    test = "def check(candidate):\n    assert candidate(4) == 8\n"
    doc = {"prompt": PROMPT, "canonical_solution": RIGHT, "test": test, "entry_point": "twice"}

    def make(count: int) -> Task:
        lines = [{"doc": {"task_id": f"Eval/{i}", **doc}} for i in range(count)]
        monkeypatch.setattr(rows, "json_lines", lambda source, path: copy.deepcopy(lines))
        return HumanEval()

    return make


def kept(db: Path) -> dict[str, list[ItemResult]]:
    """Task -> the results of its newest run."""
    with Store.open(str(db)) as store:
        return {task: read_items(store, row) for task, row in find_runs(store, "base").items()}


def test_programs_that_try_to_get_out_are_marked_and_the_run_goes_on(
    programs: Callable[[int], Task], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    texts = [body.replace("{outside!r}", repr(str(outside))) for body, _ in ESCAPES.values()]
    task, db = programs(len(texts) + 1), tmp_path / "lab.sqlite"
    before = set(psutil.Process().children(recursive=True))
    with Store.open(str(db)) as store:
        backend = Writes([*texts, RIGHT])
        ledger = StoreLedger(store, label="base", model="m")
        run_task(task, backend, ledger, describe(task, backend, None, 4), quiet)
    found = kept(db)["humaneval"]
    assert [result.output for result in found] == [*texts, RIGHT]
    if sandbox.available():  # then nothing ran at all, and every item says why
        assert {(result.not_run, result.why) for result in found} == {(True, sandbox.available())}
    else:
        for (name, (_, why)), result in zip(ESCAPES.items(), found, strict=False):
            assert (result.score, result.not_run, why in result.why) == (0.0, False, True), (name, result.why)
        assert (found[-1].score, found[-1].why) == (1.0, "")
    assert not outside.exists()
    assert set(psutil.Process().children(recursive=True)) <= before


class Talk(Copy):
    """A task that only a chat template can put."""

    name, chat = "talk", True

    def question(self, item: Item) -> Generation:
        return Generation(prompt=({"role": "user", "content": item.data["prompt"]},), max_tokens=4)


class Long(Copy):
    """Every other prompt is longer than the tiny model's context."""

    name = "long"

    def question(self, item: Item) -> Generation:
        return Generation(prompt="word " * (1000 if int(item.id) % 2 else 10), max_tokens=4)


def run(db: Path, tasks: str, *more: str) -> int:
    model = str(character_model("llama"))
    words = ["--model", model, "--db", str(db), "--blas", "bundled", "--label", "base", "--tasks", tasks]
    return cli.main(["eval", *words, *more, "--json"])


def test_what_a_model_cannot_be_asked_is_marked_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chat task without a template, and prompts longer than the model's context."""
    db = tmp_path / "lab.sqlite"
    monkeypatch.setitem(TASKS, "talk", f"{__name__}:Talk")
    monkeypatch.setitem(TASKS, "long", f"{__name__}:Long")
    assert run(db, "talk,long,synthetic_copy", "--items", "3", "--batch", "2") == 0
    talk, long, copied = json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"]
    assert (talk["judged"], talk["score"], talk["low"]) == (0, None, None)
    assert "template" in talk["not_run"][0]
    assert long["judged"] == 2
    assert long["not_run"] == ["5004 tokens, the model's context has 4096"]
    assert copied["judged"] == 3
    marked = {task: [result.not_run for result in results] for task, results in kept(db).items()}
    assert marked == {
        "talk": [True] * 3,
        "long": [False, True, False],
        "synthetic_copy": [False] * 3,
    }


@pytest.mark.parametrize("damage", ["truncated", "other content"])
def test_damaged_data_is_said_before_a_model_loads_and_what_was_kept_stays(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "lab.sqlite"
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "cache"))
    assert run(db, "synthetic_copy", "--items", "2") == 0
    before = kept(db)
    path = archive_path(BFCL_EVAL)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half" if damage == "truncated" else bytes(BFCL_EVAL.archive_bytes))
    capsys.readouterr()
    words = ["--model", str(tmp_path / "no model"), "--db", str(db)]
    assert cli.main(["eval", *words, "--tasks", "synthetic_copy,bfcl"]) == 2
    said = capsys.readouterr().err
    why = f"4 bytes instead of {BFCL_EVAL.archive_bytes}" if damage == "truncated" else "sha256 is"
    assert why in said
    assert "frontier data get --source bfcl-eval" in said
    assert kept(db) == before
