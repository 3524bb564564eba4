"""The selfcheck: a step that fails is told and the others go on; the file names no folder, user or host."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import errors
from lab import lock
from lab.cli import main
from lab.commands import selfcheck as command
from lab.scrub import scrub
from lab.selfcheck import Step, as_document, parity_step, run_steps, turns_of
from oracles import device_suite, parity
from oracles.contract import Probe
from oracles.parity import Cell, CellResult


def broken() -> tuple[bool, str, dict[str, object]]:
    raise errors.CorruptFile("/data/models/mine/config.json", "not JSON")


def test_a_failed_step_is_told_and_the_others_go_on() -> None:
    said: list[str] = []
    steps = run_steps(
        {
            "first": broken,
            "second": lambda: (True, "fine", {"n": 1}),
            "third": lambda: (False, "one cell differs", {}),
        },
        said.append,
        iter(range(10)).__next__,
    )
    assert [(step.name, step.status, step.seconds) for step in steps] == [
        ("first", "failed", 1), ("second", "ok", 1), ("third", "no", 1)
    ]  # fmt: skip
    assert steps[0].document["error"] == "CorruptFile"
    assert said[1].startswith("first: failed, CorruptFile")
    doc = as_document(steps, quick=False, version="1")
    assert doc["ok"] is False
    assert "/data" not in json.dumps(doc)
    assert as_document(steps[1:2], quick=False, version="1")["ok"] is True


def test_what_names_the_owner_is_taken_out_everywhere() -> None:
    user, host = getpass.getuser(), socket.gethostname()
    doc = scrub(
        {
            "text": f"{user} on {host}: /var/lib/{user}/models/x.safetensors is gone, see https://a.org/b/c",
            f"/opt/{user}/key": [1, None, True, 2.5, (f"C:\\Users\\{user}\\m.json",)],
            "rate": "4 GB/s",
        }
    )
    text = json.dumps(doc)
    for word in (f"/{user}", f"{user} on", host, "/var", "/opt", "C:"):
        assert word not in text
    assert doc["text"] == "user on host: x.safetensors is gone, see https://a.org/b/c"
    assert doc["key"] == [1, None, True, 2.5, ["m.json"]]
    assert doc["rate"] == "4 GB/s"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("file:///srv/alice/x/y", "y"),
        ("error:/srv/alice/m/model", "error:model"),
        ("No such file: '/alice'", "No such file: 'folder'"),
        ("../../alice/models/x", "x"),
        ("C:/data/alice/x", "x"),
        ("\\\\alice\\share\\f", "f"),
        ("https://alice:pw@a.org/index/x", "https://a.org/index/x"),
        ('"/srv/alice/My Models/x.safetensors"', '"x.safetensors"'),
        ("~alice/models", "models"),
        ("1 and/or 2, 4 GB/s", "1 and/or 2, 4 GB/s"),
    ],
)
def test_a_folder_is_taken_out_however_it_is_written(text: str, left: str) -> None:
    assert scrub(text) == left


def test_no_parity_cell_is_not_parity() -> None:
    assert parity_step([], 0)[0] is False


def test_minutes_bound_parity_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted break: --minutes bounded the speed pairs alone. What there was no time for is told, and is no pass; the
    cells' processes are ended."""
    closed, now = [], iter((10.0, 20.0, 30.0, 40.0))
    cell = Cell(name="llama", dtype="float32", model="m", probe=Probe(token_ids=(1, 2)), steps=1)

    def cells_run(cells: list[Cell], **_: object) -> Iterator[CellResult]:
        try:
            yield from (CellResult(each, "equal") for each in cells)
        finally:
            closed.append(True)

    monkeypatch.setattr(device_suite, "device_cells", lambda quick: [cell] * 4)
    monkeypatch.setattr(parity, "run_cells", cells_run)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(now)))
    good, line, doc = command.parity("bundled", 25.0, quick=True)
    assert (good, line, doc["not_begun"]) == (False, "3 equal, 1 not begun in time", 1)
    assert closed == [True]


def test_speed_comes_as_pairs_and_as_a_a_of_the_same_cell() -> None:
    for turns in (turns_of("cpu", quick=False), turns_of("metal", quick=True), turns_of("metal", quick=False)):
        parts = {part: {c.name for t in turns if t.part == part for c in t.cells} for part in ("ab", "aa")}
        assert parts["aa"]
        assert parts["aa"] <= parts["ab"]
    assert {t.group.model for t in turns_of("cpu", quick=False)} == {"tiny"}


def test_the_files_are_written_and_the_exit_code_says_whether_all_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "lock_path", lambda: tmp_path / "timing.lock")
    good = {"doctor": lambda: (True, "a machine", {})}
    monkeypatch.setattr(command, "steps_of", lambda *_: good)
    assert main(["--json", "selfcheck", "--out", str(tmp_path / "new")]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    monkeypatch.setattr(command, "steps_of", lambda *_: good | {"parity": broken})
    assert main(["selfcheck", "--out", str(tmp_path / "new")]) == 1
    doc = json.loads((tmp_path / "new" / "selfcheck.json").read_text())
    assert [step["status"] for step in doc["steps"]] == ["ok", "failed"]
    page = (tmp_path / "new" / "selfcheck.md").read_text()
    assert "not all good" in page
    assert "/data" not in page
    assert main(["selfcheck", "--minutes", "0"]) == 2


@pytest.mark.matrix
def test_live_on_a_tiny_model(tmp_path: Path) -> None:
    env = os.environ | {"FRONTIER_DB": str(tmp_path / "lab.sqlite"), "FRONTIER_CACHE": str(tmp_path / "cache")}
    line = [sys.executable, "-m", "lab.cli", "selfcheck", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "selfcheck.json").read_text()
    doc = json.loads(text)
    assert [(step["name"], step["status"]) for step in doc["steps"]] == [
        ("doctor", "ok"), ("parity", "ok"), ("speed", "ok")
    ]  # fmt: skip
    cells = doc["steps"][2]["document"]["report"]["cells"]
    assert cells[0]["launches"] == [1, 1]
    assert str(tmp_path) not in text
    assert socket.gethostname() not in text
    assert isinstance(Step("x", "ok", 0.0, "", {}).document, dict)
