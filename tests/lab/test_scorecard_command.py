"""`frontier scorecard` as a command: reads the database only, refuses flags that mean nothing, measures in order."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from scorecard_fakes import CEILINGS, DENSE, KEY, PROFILE, cell_result, filled, fingerprint, invented_run

from lab import ceilings, cli, lock, stages
from lab import fingerprint as prints
from lab.recipes import PROFILES, RECIPES
from lab.scorecard import files, measuring


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "draw", lambda card: [])  # figures have tests of their own, and take seconds
    monkeypatch.delenv("FRONTIER_DB", raising=False)
    return tmp_path


def test_the_page_is_written_from_the_database_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written to the database, and no worker, model or BLAS is asked for."""
    filled(here / "lab.sqlite")

    def rows() -> list[Any]:
        with sqlite3.connect(here / "lab.sqlite") as db:
            return list(db.iterdump())

    before = rows()
    assert cli.main(["scorecard", "--json"]) == 0
    out = capsys.readouterr()
    (page,) = json.loads(out.out)["pages"]
    assert page["machine"] == KEY
    assert page["scorecard"] == f"reports/{KEY}/scorecard.html"
    assert (here / page["scorecard"]).is_file()
    assert rows() == before
    assert "* unstable on this machine" in out.err
    assert "not run: optiq kv4: optiq: NotImplementedError" in out.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--machine", "m4"], f"known: linux-x86_64-cpu-bundled, {KEY}"),
        (["--models", "llama"], "smollm2-135m-instruct"),
        (["--server", "http://h/v1"], "given together with --measure"),
        (["--class", "quiet"], "given together with --measure"),
        (["--port", "1"], "given together with --serve"),
        (["--serve", "--port", "99999"], "0..65535"),
        (["--measure", "quick", "--serve"], "alone, after --measure"),
        (["--measure", "quick", "--machine", "m4"], "--measure is of this machine"),
        (["--measure", "quick", "--models", "a", "b"], "one model together with --measure"),
        (["--measure", "quick", "--server", "h"], "http://HOST:PORT/v1"),
        (["--measure", "slow"], "invalid choice: 'slow'"),
    ],
)
def test_bad_input_is_named(here: Path, capsys: pytest.CaptureFixture[str], line: list[str], says: str) -> None:
    filled_once(here)
    assert cli.main(["scorecard", *line]) == 2
    assert says in capsys.readouterr().err


_made: dict[str, bytes] = {}


def filled_once(folder: Path) -> None:
    """A database as `filled` makes it, made once."""
    if not _made:
        with sqlite3.connect(filled(folder / "made.sqlite")) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _made["db"] = (folder / "made.sqlite").read_bytes()
    (folder / "lab.sqlite").write_bytes(_made["db"])


def test_no_database_and_an_empty_one_say_how_to_begin(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scorecard"]) == 2
    assert f"no database at {here / 'lab.sqlite'}; run: frontier scorecard --measure quick" in capsys.readouterr().err
    assert not (here / "lab.sqlite").exists()
    from lab.store import Store

    Store.open("lab.sqlite").close()
    assert cli.main(["scorecard"]) == 2
    assert "no run of the scorecard and no decision in it yet" in capsys.readouterr().err


class Stub:
    """What a measuring asks of the world, invented; `log` holds the order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, parity: str = "equal") -> None:
        self.log: list[str] = []
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        monkeypatch.setattr(measuring, "resolve_model", lambda name, progress: str(model))
        monkeypatch.setattr(measuring, "names", lambda: ["fuse", "kv8"])
        monkeypatch.setattr(prints, "take", fingerprint)
        monkeypatch.setattr(ceilings, "measure", lambda blas: CEILINGS)
        monkeypatch.setattr(ceilings, "read_artifact", lambda folder: DENSE)
        monkeypatch.setattr(lock, "lock_path", lambda: folder / "timing.lock")
        monkeypatch.setattr(stages, "check_parity", self.parity)
        monkeypatch.setattr(stages, "run_paired", self.paired)
        monkeypatch.setattr(stages, "measure_recipes", self.recipes)
        self.status = parity

    def parity(self, model: str, *, quick: bool, tick: object) -> list[object]:
        self.log.append("parity")
        return [cell_result(self.status)]

    def paired(self, *_: object, **__: object) -> object:
        self.log.append("experiment")

        class Result:
            verdict = "undecided: quick profile"

        return Result()

    def recipes(self, stage: Any, say: Any, record: Any, *_: object) -> None:
        from dataclasses import asdict

        self.log.append("recipes")
        record.event("fitted", {"profile": asdict(PROFILE), "notes": []})
        run = invented_run(RECIPES)
        for sample in run.samples:
            record.sample(sample)
        record.quality(run.quality, "d")
        for name in ("start", "samples", "quality"):
            with stage(name, name, 1.0):
                pass


def test_measuring_stores_first_and_then_reads(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps as `make scorecard` prints them; the page holds what the database does, declared experiments too."""
    stub = Stub(monkeypatch, here)
    assert cli.main(["--blas", "bundled", "scorecard", "--measure", "quick"]) == 0
    out = capsys.readouterr().out
    assert stub.log == ["parity", "experiment", "recipes"]
    assert [line[:5] for line in out.splitlines() if line.startswith("[")] == [f"[{i}/7]" for i in range(1, 8)]
    document = json.loads(out.splitlines()[-1])
    assert document["scorecard"] == f"reports/{KEY}/scorecard.html"
    assert len(document["models"][0]["rows"]) == 9
    suites = {suite["name"]: suite["equal"] for suite in document["parity"]["suites"]}
    assert suites["model"] == 1
    assert suites["architectures"] > 7000
    assert {each["name"] for each in document["experiments"]} >= {"kv8", "fuse"}
    page = (here / document["scorecard"]).read_text()
    assert "frontier scorecard --measure quick --models smollm2-135m-instruct --blas bundled" in page
    assert cli.main(["--blas", "bundled", "scorecard", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["pages"][0]
    assert again["models"] == document["models"]


def test_a_faulty_cell_exits_with_1_and_the_page_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(monkeypatch, here, parity="differs")
    assert cli.main(["--blas", "bundled", "scorecard", "--measure", "quick"]) == 1
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["parity"]["ok"] is False
    assert "faulty cells in model" in (here / document["scorecard"]).read_text()


def test_profiles_have_what_they_promise() -> None:
    """A quick one has no time for an A/A; a full one has it, with new processes in every round."""
    assert not PROFILES["quick"].aa
    assert PROFILES["full"].aa
    assert PROFILES["full"].relaunch
