"""A sweep: the overrides of several jobs in Hydra's own grammar, each job a run with a folder of its own.

Every job is composed and checked before the first one runs. A job that fails is recorded at once, in sweep.json and in
the database, and the next one runs; nothing is measured twice or at the same time.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from engine import errors
from lab.config import BadConfig, compose
from lab.store import Store, now
from lab.tables import SweepJobRow
from lab.tree import write_json

LAUNCHERS = ("basic", "joblib", "submitit", "ray")


class NotParallel(errors.FrontierError):
    """Timed jobs on one machine would time each other."""


@dataclass(frozen=True)
class Job:
    """One job of a sweep. overrides: without sweeps; folder: of this job alone."""

    number: int
    overrides: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: outcome "finished" or "failed"; `words`: the verdict, or the error's own."""

    number: int
    overrides: tuple[str, ...]
    folder: str
    outcome: str
    words: str


def require_serial(launcher: str) -> None:
    """Timing runs one job after the other. Raises `NotParallel`, and `InvalidValue` for no launcher at all."""
    if launcher not in LAUNCHERS:
        raise errors.InvalidValue("--launcher", launcher, LAUNCHERS)
    if launcher != "basic":
        raise NotParallel(
            f"--launcher {launcher}: timed jobs never run beside each other on a machine; use basic, or --only kl"
        )


def expand(words: Sequence[str]) -> list[tuple[str, ...]]:
    """The overrides of each job: the product of all that sweep, as `experiment.delta=0.1,0.2` and `range(1,4)` do.
    Raises `BadConfig`."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(words))
        choices = [
            [f"{each.get_key_element()}={value}" for value in each.sweep_string_iterator()]
            if each.is_sweep_override()
            else [each.input_line or ""]
            for each in parsed
        ]
    except (HydraException, ValueError) as error:
        raise BadConfig(f"overrides: {' '.join(str(error).split())}") from error
    return [tuple(job) for job in itertools.product(*choices)]


def sweeps(words: Sequence[str]) -> bool:
    """Whether any of the overrides has several values."""
    return len(expand(words)) > 1


def plan_sweep(name: str, profile: str, words: Sequence[str], out: Path, experiments: Path | None = None) -> list[Job]:
    """The jobs, each composed once to be checked, in a new folder of the sweep. Raises what `compose` raises."""
    asked = expand(words)
    for overrides in asked:
        compose(name, [f"profile={profile}", *overrides], folder=experiments)
    root = out / name / f"sweep-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir()
    return [Job(number, overrides, root / f"job-{number}") for number, overrides in enumerate(asked)]


def run_sweep(name: str, jobs: Sequence[Job], work: Callable[[Job], str], say: Callable[[str], None]) -> list[JobEnd]:
    """Run the jobs in turn. `work` returns a job's verdict; an error of ours or of the system fails the job alone."""
    root = jobs[0].folder.parent
    ends: list[JobEnd] = []
    for job in jobs:
        say(f"job {job.number + 1} of {len(jobs)}: {' '.join(job.overrides) or 'as declared'}")
        job.folder.mkdir()
        record_job(name, root.name, job, "started", "")
        try:
            outcome, words = "finished", work(job)
        except (errors.FrontierError, OSError) as error:
            outcome, words = "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"
            say(f"job {job.number + 1} failed: {words}")
        ends.append(JobEnd(job.number, job.overrides, str(job.folder), outcome, words))
        write_json(root / "sweep.json", {"experiment": name, "jobs": len(jobs), "ended": [asdict(end) for end in ends]})
        record_job(name, root.name, job, outcome, words)
    return ends


def record_job(name: str, sweep: str, job: Job, outcome: str, words: str) -> None:
    """Note in the database that a job started or how it ended."""
    detail: dict[str, Any] = {"folder": str(job.folder), "words": words}
    with Store.open() as store:
        store.add(
            SweepJobRow(
                sweep=sweep,
                experiment_name=name,
                number=job.number,
                overrides=list(job.overrides),
                at=now(),
                outcome=outcome,
                detail=detail,
            )
        )
