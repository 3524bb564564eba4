"""The scorecard as data: what the page and its twins print. Pure data, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.ceilings import Artifact, Ceilings, Floor
from lab.estimate import Estimate
from lab.frontier import FrontierResult
from lab.recipes import Profile, RecipeSpec
from lab.scorecard.runs import Run

State = Literal["stable", "unstable", "absent"]


@dataclass(frozen=True)
class Cell:
    """One number of one recipe. unstable: shown grey with its `reasons`, and no verdict rests on it; absent: there is
    no number, and `reasons` say why."""

    estimate: Estimate | None
    state: State
    reasons: tuple[str, ...] = ()

    @classmethod
    def absent(cls, *reasons: str) -> Cell:
        return cls(None, "absent", reasons)

    @property
    def value(self) -> float | None:
        return None if self.estimate is None else self.estimate.value


@dataclass(frozen=True)
class Row:
    """One recipe. `why_not`: the reason it did not run, and then nothing else is filled. off_frontier: why it has no
    place there although it ran."""

    spec: RecipeSpec
    why_not: str = ""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    decode_percent: float | None = None
    prefill_percent: float | None = None
    on_frontier: bool | None = None
    p_frontier: float | None = None
    dominated_by: tuple[str, ...] = ()
    off_frontier: str = ""
    same_bits_as: str = ""
    checked: int = 0

    @property
    def name(self) -> str:
        return self.spec.name

    def cell(self, name: str) -> Cell:
        return self.cells.get(name, Cell.absent("not measured"))


@dataclass(frozen=True)
class Point:
    """The default recipe under one state of the source. ratio: its decode speed over the reference's."""

    code: str
    day: str
    runs: tuple[Run, ...]
    ratio: Cell
    decode: Cell
    peak: Cell
    kl: Cell


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything about one model on one machine.

    runs: the ones pooled here, oldest first, all of one source, environment and profile; unit: what intervals resample;
    frontier is None where `no_frontier` says why. left_out: runs that are not shown, and why. label: what it is called
    on the page, the timed model's name unless two models share it.
    """

    label: str
    model: str
    timing_model: str
    profile: Profile
    runs: tuple[Run, ...]
    unit: Literal["launch", "round"]
    units: int
    rows: tuple[Row, ...]
    ceilings: Ceilings | None
    artifacts: Mapping[str, Artifact]
    floor: Floor | None
    frontier: FrontierResult | None
    no_frontier: str
    aa: Cell
    history: tuple[Point, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def newest(self) -> Run:
        return self.runs[-1]

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if not row.why_not]

    @property
    def quick(self) -> bool:
        return self.profile.name == "quick"

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True)
class Suite:
    """One parity suite. Counts are None where no run of it is stored; faulty ones are listed in words. taken_in: `at`
    is when its recorded file came into the database."""

    name: str
    about: str
    command: str
    at: str = ""
    code: str = ""
    machine_key: str = ""
    equal: int | None = None
    not_run: int | None = None
    faulty: int | None = None
    run: str = ""
    faults: tuple[str, ...] = ()
    taken_in: bool = False

    @property
    def ok(self) -> bool | None:
        return None if self.faulty is None else self.faulty == 0


@dataclass(frozen=True)
class LabSession:
    """A session of an experiment as the page's anchor for its numbers: what it was, and what it found in words."""

    uid: str
    experiment: str
    command: str
    facts: Mapping[str, str]
    evidence: tuple[str, ...]
    config: str


@dataclass(frozen=True)
class Experiment:
    """One experiment. state: open ones are declared, measuring or opt-in. verdict, row, reasons: of the newest decision
    on this machine key; elsewhere: the verdicts of other keys; session: the uid of the one decided on."""

    name: str
    state: str
    quality_class: str
    primary: str
    hypothesis: str
    expires_on: str
    verdict: str = ""
    row: str = ""
    reasons: tuple[str, ...] = ()
    as_of: str = ""
    session: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    breadcrumb: str = ""

    @property
    def open(self) -> bool:
        return self.state not in ("promoted", "deleted")


@dataclass(frozen=True)
class Score:
    """One task's score of one model and configuration, from `frontier eval`; a share.

    floor: too near to guessing to say anything.
    """

    label: str
    task: str
    run: str
    judged: int
    items: int
    score: float | None
    low: float | None
    high: float | None
    floor: bool
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo as `frontier zoo check` found it. size: how much was measured, "full" or "quick"; baseline:
    the byte n-gram's bits per byte of the same text; measured: as a row of the zoo's table; untrue: its claims that do
    not hold."""

    name: str
    about: str
    size: str
    baseline: float
    measured: Mapping[str, Any]
    untrue: tuple[str, ...]
    run: str
    at: str
    command: str
    code: str
    machine_key: str


@dataclass(frozen=True)
class Scorecard:
    """The page of one machine key. `date`: of the newest thing on it, so that one database gives one page."""

    machine_key: str
    machine: Mapping[str, Any]
    date: str
    models: tuple[ModelCard, ...]
    suites: tuple[Suite, ...]
    experiments: tuple[Experiment, ...]
    sessions: tuple[LabSession, ...]
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()
    zoo: tuple[ZooModel, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """Every run that a number comes from, once."""
        found = {run.uid: run for card in self.models for point in card.history for run in point.runs}
        found |= {run.uid: run for card in self.models for run in card.runs}
        return [found[uid] for uid in sorted(found)]
