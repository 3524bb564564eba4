"""Sweeps: what expands, that no two jobs share a folder, that failures are kept, that timing is never parallel."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine import errors
from lab import cli, launch, sweep
from lab.config import BadConfig
from lab.launch import command_of, run_child, run_parallel
from lab.store import Store
from lab.sweep import Job, NotParallel, expand, plan_sweep, require_serial, run_sweep
from lab.tables import SweepJobRow


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRONTIER_DB", str(tmp_path / "lab.sqlite"))
    monkeypatch.setenv("FRONTIER_BLAS", "bundled")


def rows() -> list[tuple[int, str, str]]:
    with Store.open() as store:
        return [(row.number, row.outcome, row.detail["words"]) for row in store.rows(SweepJobRow)]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ([], [()]),
        (["experiment.delta=0.1"], [("experiment.delta=0.1",)]),
        (["a=1,2", "b=x"], [("a=1", "b=x"), ("a=2", "b=x")]),
        (["a=1,2", "b=x,y"], [("a=1", "b=x"), ("a=1", "b=y"), ("a=2", "b=x"), ("a=2", "b=y")]),
        (["n=range(1,4)"], [("n=1",), ("n=2",), ("n=3",)]),
        (["l=[1,2]"], [("l=[1,2]",)]),
    ],
)
def test_overrides_sweep_as_hydras_do(words: list[str], jobs: list[tuple[str, ...]]) -> None:
    assert expand(words) == jobs


@pytest.mark.parametrize("words", [["a=1,,2"], ["a=[1"], ["a b"]])
def test_what_does_not_parse_is_one_line(words: list[str]) -> None:
    with pytest.raises(BadConfig) as caught:
        expand(words)
    assert "\n" not in str(caught.value)


def test_every_job_is_checked_before_the_first(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="above 0"):
        plan_sweep("kv8", "quick", ["experiment.delta=0.1,-1"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_folder_is_ever_shared_and_a_failure_is_kept_at_once(tmp_path: Path) -> None:
    jobs = plan_sweep("kv8", "quick", ["experiment.delta=0.1,0.2,0.3"], tmp_path)
    again = plan_sweep("kv8", "quick", ["experiment.delta=0.1,0.2,0.3"], tmp_path)
    assert len({job.folder for job in (*jobs, *again)}) == 6
    seen: list[list[tuple[int, str, str]]] = []

    def work(job: Job) -> str:
        seen.append(rows())
        if job.number == 1:
            raise errors.MissingTool("no compiler")
        return "undecided"

    ends = run_sweep("kv8", jobs, work, lambda _line: None)
    assert [end.outcome for end in ends] == ["finished", "failed", "finished"]
    assert seen[2][-2:] == [(1, "failed", "MissingTool: no compiler"), (2, "started", "")]
    document = json.loads((jobs[0].folder.parent / "sweep.json").read_text())
    assert [end["words"] for end in document["ended"]] == ["undecided", "MissingTool: no compiler", "undecided"]
    with pytest.raises(FileExistsError):
        run_sweep("kv8", jobs, work, lambda _line: None)


def test_a_killed_sweep_leaves_its_started_job(tmp_path: Path) -> None:
    jobs = plan_sweep("kv8", "quick", [], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_sweep("kv8", jobs, lambda _job: (_ for _ in ()).throw(KeyboardInterrupt), lambda _line: None)
    assert rows() == [(0, "started", "")]


@pytest.mark.parametrize("launcher", ["joblib", "submitit", "ray"])
def test_timing_is_never_parallel(launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotParallel, match="never run beside each other"):
        require_serial(launcher)
    line = ["lab", "run", "kv8", "experiment.delta=0.1,0.2", "--multirun", "--launcher", launcher]
    assert cli.main(line) == 2
    assert "timed jobs never run beside each other" in capsys.readouterr().err
    assert rows() == []


def test_an_unknown_launcher_lists_the_known() -> None:
    with pytest.raises(errors.InvalidValue, match="basic, joblib, submitit, ray"):
        require_serial("threads")
    require_serial("basic")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["experiment.delta=0.1,0.2"], "--multirun for a job each"),
        (["--launcher", "joblib"], "with --multirun"),
        (["--jobs", "3"], "one job at a time"),
        (["--multirun", "--only", "kl", "--launcher", "joblib", "--jobs", "0"], "an integer >= 1"),
        (["profile=quick"], "the flag --profile"),
        (["experiment.delta=0.1,,2", "--multirun"], "overrides:"),
    ],
)
def test_bad_sweeps_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "run", "kv8", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_sweep_with_a_failed_job_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lab.commands import lab_run

    def measure(args: object, words: list[str], folder: Path, out: object) -> dict[str, str]:
        if "experiment.delta=0.2" in words:
            raise errors.MissingTool("no compiler")
        return {"verdict": "undecided: quick profile"}

    monkeypatch.setattr(lab_run, "run_timed", measure)
    line = ["lab", "run", "kv8", "experiment.delta=0.1,0.2", "--multirun", "--profile", "quick", "--out", str(tmp_path)]
    assert cli.main(line) == 1
    assert "1 of 2 jobs finished, 1 failed" in capsys.readouterr().out
    assert [outcome for _, outcome, _ in rows()] == ["started", "finished", "started", "failed"]


def small_jobs(tmp_path: Path) -> list[Job]:
    (tmp_path / "sweep-1").mkdir()
    return [Job(n, (f"experiment.delta=0.{n + 1}",), tmp_path / "sweep-1" / f"job-{n}") for n in range(3)]


@pytest.mark.parametrize(
    "launcher",
    ["joblib", pytest.param("submitit", marks=pytest.mark.matrix), pytest.param("ray", marks=pytest.mark.matrix)],
)
def test_each_launcher_runs_jobs_as_processes_of_their_own(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its local mode: submitit as processes, ray as a cluster of this machine. Catches a launcher that runs two
    jobs in one process, takes a failed job for a finished one, or gives its ends another job's number."""
    monkeypatch.setenv("SUBMITIT_CLUSTER", "local")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def command(name: str, profile: str, blas: str, job: Job) -> list[str]:
        return [sys.executable, "-c", f"import os; print('job', {job.number}, os.getpid()); exit({job.number} == 2)"]

    monkeypatch.setattr(launch, "command_of", command)
    ends = run_parallel("kv8", "quick", "bundled", small_jobs(tmp_path), launcher, 2, lambda _line: None)
    assert [end.outcome for end in ends] == ["finished", "finished", "failed"]
    assert [end.words.split()[1] for end in ends] == ["0", "1", "2"]
    assert len({end.words.split()[-1] for end in ends}) == 3
    assert len((tmp_path / "sweep-1" / "job-0" / "job.log").read_text().split()) == 3
    assert sorted(rows())[-1][:2] == (2, "started")
    assert {outcome for _, outcome, _ in rows()} == {"started", "finished", "failed"}


def test_each_end_is_recorded_when_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches ends that are kept until the last job's: the first job ends only once the others' stand recorded."""
    done = tmp_path / "sweep-1" / "sweep.json"
    wait = (
        "import json, sys, time\n"
        "for _ in range(600):\n"
        "    try:\n"
        "        if len(json.load(open(sys.argv[1]))['ended']) == 2: sys.exit(0)\n"
        "    except OSError:\n"
        "        pass\n"
        "    time.sleep(0.05)\n"
        "sys.exit('the others were not recorded')\n"
    )

    def command(name: str, profile: str, blas: str, job: Job) -> list[str]:
        return [sys.executable, "-c", wait if job.number == 0 else "print('done')", str(done)]

    monkeypatch.setattr(launch, "command_of", command)
    said: list[str] = []
    ends = run_parallel("kv8", "quick", "bundled", small_jobs(tmp_path), "joblib", 2, said.append)
    assert [(end.number, end.outcome) for end in ends] == [(0, "finished"), (1, "finished"), (2, "finished")]
    assert said[-1].startswith("job 1 of 3 finished")
    assert [number for number, outcome, _ in rows() if outcome == "finished"][-1] == 0


def test_a_launcher_that_is_not_installed_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.MissingTool, match="pip install ray"):
        run_parallel("kv8", "quick", "bundled", small_jobs(tmp_path), "ray", 2, lambda _line: None)
    with pytest.raises(errors.InvalidValue, match="--jobs"):
        run_parallel("kv8", "quick", "bundled", [], "joblib", 0, lambda _line: None)


def test_a_jobs_command_line_measures_no_time(tmp_path: Path) -> None:
    command = command_of("kv8", "quick", "bundled", Job(0, ("experiment.delta=0.1",), tmp_path))
    assert command[3:7] == ["lab", "run", "kv8", "experiment.delta=0.1"]
    assert command[command.index("--only") + 1] == "kl"
    code, words = run_child([sys.executable, "-c", "print('a'); raise SystemExit('why')"], str(tmp_path / "log"))
    assert (code, words) == (1, "a why")


def test_the_launchers_of_both_modules_agree() -> None:
    assert ("basic", *launch.RUNNERS) == sweep.LAUNCHERS
