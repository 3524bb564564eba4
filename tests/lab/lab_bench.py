"""A lab of invented workers, whole: runs, confirmations and resumed sessions in one database."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from lab_fakes import Bytes, Machine, gate_that_says, model_folder
from sqlalchemy import create_engine
from sqlalchemy import text as sql

from engine import machine
from lab import fingerprint, run, session
from lab.config import LabConf, compose
from lab.design import session_seed
from lab.run import RunResult, confirm_experiment, resume_experiment, run_experiment
from lab.sensors import Reading
from lab.store import Store

SMALL = ("profile.aa_quads=4", "profile.prompt_tokens=8")
DAY = date(2026, 12, 1)
OURS = ("experiment.kind=ours", "experiment.guardrails=[prefill_tok_s]", "experiment.delta=null")
TIMED = (*OURS, "experiment.primary=decode_tok_s", "experiment.targets=[a-key,another]")
STILL = Reading(at=0, load1=0.0, steal_s=0.0, cpu_s=None, swap_in_bytes=0, free_bytes=2**40, throttles=0)


class Lab:
    """One database, one folder and one invented machine. `later`: minutes that have passed for a confirmation;
    `declares`: words that every declaration and profile has here, so that a run of them is as declared."""

    def __init__(self, path: Path) -> None:
        self.path, self.said, self.later = path, [], 0.0
        self.declares: tuple[str, ...] = ()
        self.world = Machine(machine().key, noise=0.004)
        self.url = str(path / "lab.sqlite")

    def around(self, status: str = "PASS", **more: object) -> dict[str, object]:
        return {
            "say": self.said.append,
            "url": self.url,
            "out": self.path / "outputs",
            "start": self.world.start,
            "gate": gate_that_says(status, **more),
            "as_of": DAY,
            "clock": self.world.clock,
            "lock": self.path / "timing.lock",
            "now": lambda: datetime.now(UTC) + timedelta(minutes=self.later),
        }

    def run(
        self,
        name: str = "kv8",
        *words: str,
        profile: str = "full",
        status: str = "PASS",
        overrides: tuple[str, ...] = (),
        **more: object,
    ) -> RunResult:
        """words: of the declaration; overrides: of the command line."""
        self.declares = (*(SMALL if profile == "full" else SMALL[1:]), *words)
        return run_experiment(name, profile=profile, overrides=overrides, **self.around(status, **more))

    def compose(self, name: str, overrides: Sequence[str], folder: Path | None = None) -> LabConf:
        return copy.deepcopy(_composed(name, (*overrides[:1], *self.declares, *overrides[1:]), folder))

    def confirm(self, name: str = "kv8", *, later: float = 31) -> RunResult:
        self.later = later
        return confirm_experiment(name, **self.around())

    def resume(self, name: str = "kv8", uid: str | None = None) -> RunResult:
        return resume_experiment(name, uid, **self.around())

    def store(self) -> Store:
        return Store.open(self.url)


def make_lab(path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool = False) -> Lab:
    """A lab in `path`; `begun`: its model is there already."""
    folder = path / "model" if begun else model_folder(path / "model")
    monkeypatch.setattr(run, "resolve_model", lambda _name, progress: folder)
    monkeypatch.setattr(run, "load_tokenizer", lambda _folder: Bytes())
    monkeypatch.setattr(session.time, "sleep", lambda _s: None)
    monkeypatch.setattr(session.sensors, "read", lambda: STILL)
    number = itertools.count()

    def seed(name: str, _uid: str, part: str) -> int:
        """The coins do not depend on the time of the test."""
        return session_seed(name, f"session {next(number) // 2}", part)

    monkeypatch.setattr(run, "session_seed", seed)
    taken = fingerprint_here()
    monkeypatch.setattr(fingerprint, "take", lambda: taken)
    lab = Lab(path)
    monkeypatch.setattr(run, "compose", lab.compose)
    return lab


@functools.cache
def _composed(name: str, overrides: tuple[str, ...], folder: Path | None) -> LabConf:
    return compose(name, overrides, folder=folder)


@functools.cache
def fingerprint_here() -> fingerprint.Fingerprint:
    """Taken once: it asks git and the compiler."""
    return fingerprint.take()


def edit(lab: Lab, table: str, statement: str) -> None:
    """Change rows that the triggers protect."""
    engine = create_engine(f"sqlite:///{lab.url}")
    with engine.begin() as connection:
        connection.execute(sql(f"DROP TRIGGER {table}_no_update"))
        assert connection.execute(sql(statement)).rowcount
    engine.dispose()
