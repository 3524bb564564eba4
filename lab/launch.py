"""Jobs of a sweep beside each other, for KL alone: each is a `frontier` process of its own, where a launcher puts it.

joblib runs them on this machine; submitit gives them to Slurm, or to local processes where there is none; ray gives
them to a cluster, or to this machine. All machines need this source tree at one path, and a folder that they share.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import errors
from lab.sweep import Job, JobEnd, record_job
from lab.tree import write_json

TAIL_LINES = 3
POLL_S = 0.2
INSTALL = {"joblib": "joblib", "submitit": "submitit", "ray": "ray"}


def command_of(name: str, profile: str, blas: str, job: Job) -> list[str]:
    """The command line of one job."""
    words = ["lab", "run", name, *job.overrides, "--only", "kl", "--profile", profile]
    return [sys.executable, "-m", "lab.cli", *words, "--blas", blas, "--out", str(job.folder.absolute()), "--json"]


def run_child(command: Sequence[str], log: str) -> tuple[int, str]:
    """Run one job and keep what it says in `log`: (exit code, the last lines). Any launcher can run this anywhere."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        code = subprocess.run(list(command), stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    lines = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return code, " ".join(lines[-TAIL_LINES:])


def require_launcher(launcher: str, at_once: int) -> None:
    """Raise `InvalidValue` for a launcher or a number of jobs that cannot be, `MissingTool` where it is not there."""
    if launcher not in RUNNERS:
        raise errors.InvalidValue("--launcher", launcher, ("basic", *RUNNERS))
    if at_once < 1:
        raise errors.InvalidValue("--jobs", at_once, "an integer >= 1")
    _module(launcher)


def run_parallel(
    name: str, profile: str, blas: str, jobs: Sequence[Job], launcher: str, at_once: int, say: Callable[[str], None]
) -> list[JobEnd]:
    """Run all jobs, `at_once` at a time, and record each end when it comes. Raises `MissingTool` where the launcher is
    not installed, `InvalidValue` for a launcher or a number that cannot be."""
    require_launcher(launcher, at_once)
    module = _module(launcher)
    root = jobs[0].folder.parent
    calls = []
    for job in jobs:
        job.folder.mkdir()
        record_job(name, root.name, job, "started", "")
        calls.append((command_of(name, profile, blas, job), str(job.folder / "job.log")))
    say(f"{len(jobs)} jobs by {launcher}, {at_once} at a time; each writes job.log in its folder")
    ends: list[JobEnd] = []
    for index, (code, words) in RUNNERS[launcher](module, calls, at_once, root):
        job, outcome = jobs[index], "failed" if code else "finished"
        record_job(name, root.name, job, outcome, words)
        ends.append(JobEnd(job.number, job.overrides, str(job.folder), outcome, words))
        write_json(root / "sweep.json", {"experiment": name, "jobs": len(jobs), "ended": [asdict(end) for end in ends]})
        say(f"job {job.number + 1} of {len(jobs)} {outcome}: {words}")
    return sorted(ends, key=lambda end: end.number)


def _module(launcher: str) -> Any:
    try:
        return importlib.import_module(launcher)
    except ModuleNotFoundError as error:
        raise errors.MissingTool(f"--launcher {launcher} needs it; run: pip install {INSTALL[launcher]}") from error


Calls = Sequence[tuple[list[str], str]]
Ends = Iterator[tuple[int, tuple[int, str]]]


def run_numbered(index: int, command: Sequence[str], log: str) -> tuple[int, tuple[int, str]]:
    """`run_child` of one of several: (which, how it ended)."""
    return index, run_child(command, log)


def by_joblib(joblib: Any, calls: Calls, at_once: int, _root: Path) -> Ends:
    """Threads are enough: the work is in child processes."""
    parallel = joblib.Parallel(n_jobs=at_once, prefer="threads", return_as="generator_unordered")
    yield from parallel(joblib.delayed(run_numbered)(i, command, log) for i, (command, log) in enumerate(calls))


def by_submitit(submitit: Any, calls: Calls, at_once: int, root: Path) -> Ends:
    """Slurm where it is found, else local processes; SUBMITIT_CLUSTER says which (local, slurm)."""
    executor = submitit.AutoExecutor(folder=str(root / "submitit"), cluster=os.environ.get("SUBMITIT_CLUSTER"))
    executor.update_parameters(timeout_min=24 * 60, slurm_array_parallelism=at_once)
    waiting, running = list(enumerate(calls)), list[Any]()
    while waiting or running:
        while waiting and len(running) < at_once:  # the local executor would start all of them at once
            index, (command, log) = waiting.pop(0)
            running.append(executor.submit(run_numbered, index, command, log))
        done = [job for job in running if job.done()]
        running = [job for job in running if job not in done]
        yield from (job.result() for job in done)
        if not done:
            time.sleep(POLL_S)


def by_ray(ray: Any, calls: Calls, at_once: int, _root: Path) -> Ends:
    """RAY_ADDRESS names a cluster; without it a local one is started."""
    ray.init(num_cpus=None if "RAY_ADDRESS" in os.environ else at_once)
    try:
        remote = ray.remote(num_cpus=1)(run_numbered)
        running = [remote.remote(index, command, log) for index, (command, log) in enumerate(calls)]
        while running:
            done, running = ray.wait(running, num_returns=1)
            yield from ray.get(done)
    finally:
        ray.shutdown()


RUNNERS: dict[str, Callable[[Any, Calls, int, Path], Ends]] = {
    "joblib": by_joblib,
    "submitit": by_submitit,
    "ray": by_ray,
}
