"""`frontier lab` as a user types it."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from life_fakes import CPU, CUDA, MAC, decide, row_of, source_tree

from engine import errors
from lab import cli
from lab.commands.lab_run import note_jump
from lab.console import Output
from lab.lock import hold_timing
from lab.store import Store
from lab.tables import ExperimentRow, SampleRow, SessionEventRow

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
    names = [row["name"] for row in listed]
    assert names == sorted(names)
    assert {"kv4", "kv8", "kv8_4", "turbo_k8v3", "on_write", "fuse", "compile_step", "blas", "chunk"} <= {*names}
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
        (["run", "kv9"], "experiments: unknown 'kv9'; known: blas, "),
        (["run", "kv8", "experiment.detla=1"], "unknown 'detla'"),
        (["run", "kv8", "--profile", "fast"], "profile: unknown 'fast'; known: full, quick"),
        (["confirm", "kv8"], "kv8 has no decision on machine key"),
        (["resume", "kv8"], "kv8: none of its 0 sessions is left to go on with"),
        (["decide", "kv8"], "kv8: there is no database at"),
        (["replay", "kv8"], "kv8: there is no database at"),
        (["decide", "kv8", "--as-of", "soon"], "--as-of='soon'"),
        (["promote", "kv8"], "run this in the source tree"),
        (
            ["run", "blas", "experiment.base.blas=openblas", "experiment.candidate.blas=bundled"],
            "openblas: the base of",
        ),
        (["audit", "--as-of", "soon"], "--as-of='soon'"),
        (["show", "kv9"], "unknown 'kv9'"),
        (["confirm", "kv9"], "experiments: unknown 'kv9'; known: blas, "),
        (["resume", "kv9"], "experiments: unknown 'kv9'; known: blas, "),
        (["decide", "kv9"], "experiments: unknown 'kv9'; known: blas, "),
        (["replay", "kv9"], "experiments: unknown 'kv9'; known: blas, "),
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


def test_help_names_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["lab", "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for name in (
        "new",
        "run",
        "confirm",
        "decide",
        "list",
        "show",
        "audit",
        "power",
        "promote",
        "delete",
        "extend",
        "example:",
    ):
        assert name in text


def tree_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = source_tree(tmp_path / "tree", "fuse", "kv8").root
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["promote", "kv8"], "kv8: there is no database and so no decision"),
        (["delete", "kv8", "--yes"], "kv8: there is no database and so no decision"),
        (["new", "half", "--candidate", "chunk=512"], "say --hypothesis, --primary, --delta, --expires"),
    ],
)
def test_a_step_too_early_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree_of(tmp_path, monkeypatch)
    assert cli.main(["lab", *words]) == 2
    assert message in capsys.readouterr().err


def test_promote_is_a_dry_run_until_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree_of(tmp_path, monkeypatch)
    with Store.open() as store:
        decide(store, "fuse", CPU, "promote on this machine key", "3")
    before = (root / "engine" / "levers.json").read_text()
    assert cli.main(["lab", "promote", "fuse"]) == 0
    said = capsys.readouterr().out
    for words in ("evidence: decision 1", "-2.1 %", "becomes the default on", "dry run; --yes does it"):
        assert words in said
    assert (root / "engine" / "levers.json").read_text() == before
    assert cli.main(["lab", "promote", "fuse", "--yes", "--json"]) == 0
    assert last(capsys.readouterr().out)["done"] is True
    assert (root / "engine" / "levers.json").read_text() != before
    assert "fuse: promoted" in (root / "reports" / "log.md").read_text()


def test_delete_and_extend_are_dry_runs_until_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree_of(tmp_path, monkeypatch)
    with Store.open() as store:
        for key in (CPU, MAC, CUDA):
            decide(store, "kv8", key, "not default on this machine key")
    for words, done in (([], False), (["--yes"], True)):
        assert cli.main(["lab", "extend", "fuse", "--reason", "away", *words]) == 0
        assert ("extension_reason" in (root / "experiments" / "fuse.yaml").read_text()) is done
        assert cli.main(["lab", "delete", "kv8", *words]) == 0
        assert (root / "experiments" / "kv8.yaml").exists() is not done
    assert "evidence: comparison" in capsys.readouterr().out


def test_new_declares_and_enters_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree_of(tmp_path, monkeypatch)
    assert cli.main(["lab", "new", "kv8"]) == 0  # its file is there
    for words in (["--class", "QT"], ["--base", "kv=kv4"], ["--prompt-tokens", "7"], ["--target", "nowhere"]):
        assert cli.main(["lab", "new", "kv8", *words]) == 2
        assert f"{words[0]}=" in capsys.readouterr().err
    expires = datetime.now(UTC).date() + timedelta(days=30)
    words = ["--hypothesis", "less memory", "--primary", "kv_bytes", "--delta", "0.3", "--expires", str(expires)]
    assert cli.main(["lab", "new", "kv6", *words, "--candidate", "kv=kv6", "--class", "QT"]) == 0
    assert "oracle-owned, lever kv" in capsys.readouterr().out
    assert (root / "experiments" / "kv6.yaml").is_file()
    with Store.open() as store:
        assert {row.name for row in store.rows(ExperimentRow)} == {"kv8", "kv6"}


def test_new_asks_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree_of(tmp_path, monkeypatch)
    expires = datetime.now(UTC).date() + timedelta(days=30)
    answers = iter(["less memory", "kv_bytes", str(expires)])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _question: next(answers))
    assert cli.main(["lab", "new", "kv6", "--delta", "0.3", "--candidate", "kv=kv6", "--class", "QT"]) == 0
    assert "hypothesis: less memory" in (root / "experiments" / "kv6.yaml").read_text()
    assert next(answers, None) is None


def test_an_expired_experiment_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree_of(tmp_path, monkeypatch)
    path = root / "experiments" / "kv8.yaml"
    text = path.read_text().replace("2026-11-29", "2025-11-29").replace("2026-12-29", "2025-12-29")
    path.write_text(text)
    assert cli.main(["lab", "run", "kv8"]) == 2
    said = capsys.readouterr().err
    for words in ("kv8 expired on 2025-12-29", "lab extend kv8 --reason", "lab decide kv8", "lab delete kv8"):
        assert words in said


def test_show_draws_each_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree_of(tmp_path, monkeypatch)
    with Store.open() as store:
        decide(store, "kv8", CPU, "not default on this machine key")
        experiment = store.experiment("kv8")
        assert experiment is not None
        arm = store.arms(experiment.id)[0].id
        for block in range(6):
            for position, role in enumerate(("base", "candidate", "candidate", "base")):
                speed = 10.0 if role == "base" else 11.0 + 0.01 * (block // 2)
                what = {"session_id": 1, "arm_id": arm, "part": "ab", "role": role, "launch": block // 2}
                where = {"block": block, "position": position, "order_code": "ABBA", "valid": True, "why": ""}
                store.add(
                    row_of(SampleRow, decode_tok_s=speed, prefill_tok_s=speed, ttft_ms=1 / speed, **what, **where)
                )
    assert cli.main(["lab", "show", "kv8", "--json"]) == 0
    captured = capsys.readouterr()
    document = last(captured.out)
    (session,) = document["sessions"]  # type: ignore[misc]
    for path in session["figures"]:
        assert Path(path).stat().st_size > 1000
    assert {Path(path).suffix for path in session["figures"]} == {".png", ".svg"}
    assert "decode_tok_s: +10.1 % (+9.9 % to +10.3 %); launches +10.0 %, +10.1 %, +10.2 %" in captured.err
    assert "comparison 1: primary decode_tok_s" in captured.err
    assert Path("reports/experiments/kv8/show.txt").read_text().count("decision ") == 1


def test_list_says_what_may_only_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open() as store:
        decide(store, "kv4", CPU, "opt-in (expiring) (counted)", "6")
        experiment = store.experiment("kv4")
        assert experiment is not None
        store.set_state(experiment.id, "measuring")
    assert cli.main(["lab", "list", "--json"]) == 0
    listed = last(capsys.readouterr().out)["experiments"]
    assert isinstance(listed, list)
    (row,) = [each for each in listed if each["name"] == "kv4"]
    assert (row["state"], row["verdicts"]) == ("opt-in (expiring)", {CPU: "opt-in (expiring) (counted)"})


def test_a_clock_that_was_set_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open() as store:
        decide(store, "kv8", CPU, "rerun")
    note_jump("2026-1", -7200.0, Output(as_json=False))
    assert "set by -7200.0 s" in capsys.readouterr().out
    with Store.open() as store:
        assert [(row.event, row.detail) for row in store.rows(SessionEventRow)] == [
            ("clock-jump", {"seconds": -7200.0})
        ]


def test_a_file_that_cannot_be_read_is_named_and_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches one bad declaration that hides all others, or that is passed over in silence."""
    root = tree_of(tmp_path, monkeypatch)
    (root / "experiments" / "broken.yaml").write_text("name: broken\nbase: [\n")
    (root / "experiments" / "binary.yaml").write_bytes(b"\xff\xfe")
    assert cli.main(["lab", "list", "--json"]) == 1
    captured = capsys.readouterr()
    listed = last(captured.out)["experiments"]
    assert isinstance(listed, list)
    states = {row["name"]: row["state"] for row in listed}
    assert states == {"binary": "cannot be read", "broken": "cannot be read", "fuse": "declared", "kv8": "declared"}
    assert "experiments/broken.yaml cannot be read: " in captured.err
    assert cli.main(["lab", "audit", "--as-of", "2026-12-01"]) == 1
    said = capsys.readouterr().out
    assert "problem: broken cannot be read: " in said
    assert "problem: binary cannot be read: " in said
    monkeypatch.setattr("lab.run.run_experiment", stop_there)
    assert cli.main(["lab", "run", "kv8", "--profile", "quick"]) == 2
    captured = capsys.readouterr()
    assert "note: experiments/broken.yaml cannot be read, and has no row" in captured.out
    assert "the run itself" in captured.err
    assert cli.main(["lab", "run", "broken"]) == 2
    assert "broken.yaml: " in capsys.readouterr().err


def stop_there(*_: object, **__: object) -> None:
    raise errors.MissingTool("the run itself")


@pytest.mark.parametrize(
    "line",
    [
        "kv8 experiment.delta=0.2 profile.aa_quads=8 --profile quick --model other",
        "kv8 --profile quick experiment.delta=0.2 --model other profile.aa_quads=8",
        "--profile quick kv8 experiment.delta=0.2 --model other profile.aa_quads=8",
        "experiment.delta=0.2 --profile quick profile.aa_quads=8 kv8 --model other",
    ],
)
def test_overrides_stand_anywhere(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches overrides that are taken before the flags only."""
    taken: list[tuple[str, dict[str, object]]] = []

    def run(name: str, **options: object) -> None:
        taken.append((name, options))
        raise errors.MissingTool("the run itself")

    monkeypatch.setattr("lab.run.run_experiment", run)
    monkeypatch.setattr("lab.declare.compose_all", lambda only: ({}, {}))
    assert cli.main(["lab", "run", *line.split()]) == 2
    ((name, options),) = taken
    assert (name, options["profile"]) == ("kv8", "quick")
    assert options["overrides"] == ["experiment.delta=0.2", "profile.aa_quads=8", "model='other'"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kv8 --profil quick", "unrecognized arguments: --profil"),
        ("kv8 --nothing experiment.delta=0.2", "unrecognized arguments: --nothing"),
        ("kv8 --profile quick kv4", "override='kv4'"),
        ("--profile quick", "the following arguments are required: name"),
    ],
)
def test_unknown_flags_of_a_run_are_refused_by_name(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lab", "run", *line.split()]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_a_kl_run_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches KL, which is no timing, that waits for a timing run."""
    monkeypatch.setattr("lab.lock.lock_path", lambda: tmp_path / "timing.lock")
    monkeypatch.setattr("engine.resolve_model", lambda name, progress=None: str(tmp_path), raising=False)
    monkeypatch.setattr("lab.gates.run_gate", lambda *_: [])
    with hold_timing("frontier bench decode"):
        assert cli.main(["lab", "run", "kv8", "--only", "kl", "--out", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out" / "kv8").glob("*/kl.json"))) == 1
