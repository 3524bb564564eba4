"""`frontier lab` as a user types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lab import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own without a database; the experiments are the repository's."""
    monkeypatch.setenv("FRONTIER_BLAS", "bundled")
    monkeypatch.delenv("FRONTIER_DB", raising=False)
    monkeypatch.chdir(tmp_path)


def last(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text.strip().splitlines()[-1])
    return document


def test_list_show_and_power_without_a_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["lab", "list", "--json"]) == 0
    listed = last(capsys.readouterr().out)["experiments"]
    assert isinstance(listed, list)
    assert [row["name"] for row in listed] == ["kv4", "kv8"]
    assert listed[0]["last_verdict"] is None
    assert cli.main(["lab", "show", "kv8", "--json"]) == 0
    assert last(capsys.readouterr().out)["sessions"] == []
    assert cli.main(["lab", "power", "kv8", "--json"]) == 0
    captured = capsys.readouterr()
    rows = last(captured.out)["power"]
    assert isinstance(rows, list)
    assert {"decode_tok_s", "prefill_tok_s", "ttft_ms"} == {row["metric"] for row in rows}
    assert f"no database yet at {tmp_path / 'lab.sqlite'}: nothing was run" in captured.err
    assert not (tmp_path / "lab.sqlite").exists()


@pytest.mark.parametrize("words", ["list", "show kv8", "power kv8", "audit"])
def test_a_mistyped_database_is_said(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = str(tmp_path / "mistyped.sqlite")
    monkeypatch.setenv("FRONTIER_DB", named)
    assert cli.main(["lab", *words.split()]) == 2
    assert capsys.readouterr().err == f"error: no database at {named}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("day", "code"), [("2026-11-29", 0), ("2026-12-29", 0), ("2026-12-30", 1)])
def test_audit_fails_on_an_expired_experiment(day: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "audit", "--as-of", day]) == code
    assert f"audit as of {day}" in capsys.readouterr().out


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git tree: there is no HEAD to judge as of")
def test_audit_as_of_the_head_commit(capsys: pytest.CaptureFixture[str]) -> None:
    """The audit of this repository. The day is HEAD's, so that an untouched clone never turns red by the calendar."""
    day = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%cs"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert cli.main(["lab", "audit", "--as-of", day]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "kv9"], "experiments: unknown 'kv9'; known: kv4, kv8"),
        (["run", "kv8", "experiment.detla=1"], "unknown 'detla'"),
        (["run", "kv8", "--profile", "fast"], "profile: unknown 'fast'; known: full, quick"),
        (["promote", "kv8"], "frontier lab promote is not built yet"),
        (["confirm", "kv8"], "kv8 has no decision on machine key"),
        (["resume", "kv8"], "kv8: none of its 0 sessions is left to go on with"),
        (["decide", "kv8"], "kv8: there is no database at"),
        (["replay", "kv8"], "kv8: there is no database at"),
        (["decide", "kv8", "--as-of", "soon"], "--as-of='soon'"),
        (["audit", "--as-of", "soon"], "--as-of='soon'"),
        (["show", "kv9"], "unknown 'kv9'"),
        ([], "ACTION"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lab", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_help_names_what_is_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["lab", "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for name in ("run", "list", "show", "audit", "power", "promote", "not built yet", "example:"):
        assert name in text
