"""The runs of the scorecard as they stand in the database. Nothing is computed here, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from engine import errors
from lab.ceilings import Artifact, Ceilings
from lab.config import MachineConf
from lab.quality import Quality
from lab.recipes import Profile, RecipeSpec, Sample
from lab.scorecard_tables import ScorecardEventRow, ScorecardQualityRow, ScorecardRunRow, ScorecardSampleRow
from lab.store import Store
from lab.tables import CodeRow, EnvRow, MachineRow

ENDS = ("finished", "failed")


class NothingMeasured(errors.FrontierError):
    """The database holds no run of the scorecard, no decision and no parity cell to show."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measuring. outcome: "finished", "failed" or "open" (running, or killed). `limits`: of its machine class.

    profile, ceilings and artifacts are None in a run that ended before it knew them; `artifacts` go by model name.
    """

    uid: str
    started: str
    outcome: str
    words: str
    command: str
    model: str
    timing_model: str
    model_sha256: str
    machine_key: str
    machine: Mapping[str, Any]
    git_sha: str
    dirty: bool
    arms_sha256: str
    env_sha256: str
    python: str
    packages: Mapping[str, Any]
    variables: Mapping[str, Any]
    boot: str
    limits: MachineConf
    profile: Profile | None = None
    ceilings: Ceilings | None = None
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    specs: tuple[RecipeSpec, ...] = ()
    quality: Mapping[str, Quality] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sensors: tuple[Mapping[str, Any], ...] = ()

    @property
    def code(self) -> str:
        """The commit in words."""
        return f"{self.git_sha[:12]}{' (dirty)' if self.dirty else ''}"

    @property
    def day(self) -> str:
        return self.started[:10]


def machine_keys(store: Store) -> list[str]:
    """Every machine key of the database, sorted."""
    return sorted({row.key for row in store.rows(MachineRow)})


def require_key(store: Store, key: str) -> None:
    """Raise `UnknownField` for a machine key of which the database has nothing; the message lists the known ones."""
    known = machine_keys(store)
    if key not in known:
        raise errors.UnknownField("machine keys", key, known or ["none yet"])


def read_runs(store: Store, key: str, models: Sequence[str] = ()) -> list[Run]:
    """The runs on a machine key, oldest first; of `models` (as asked or as timed) or of all. Raises `UnknownField` for
    a model without a run there."""
    machines = {row.id: row for row in store.rows(MachineRow, key=key)}
    rows = [row for row in store.rows(ScorecardRunRow) if row.machine_id in machines]
    known = sorted({name for row in rows for name in (row.model, row.timing_model)})
    for name in models:
        if name not in known:
            raise errors.UnknownField(f"models measured on {key}", name, known or ["none yet"])
    kept = [row for row in rows if not models or row.model in models or row.timing_model in models]
    return [_read(store, row, machines[row.machine_id]) for row in kept]


def _read(store: Store, row: ScorecardRunRow, machine: MachineRow) -> Run:
    events = store.rows(ScorecardEventRow, run_id=row.id)
    last = {event.event: event.detail for event in events}
    outcome = next((event.event for event in reversed(events) if event.event in ENDS), "open")
    fitted = last.get("fitted")
    samples = store.rows(ScorecardSampleRow, run_id=row.id)
    refused = {event.detail["recipe"]: str(event.detail["why"]) for event in events if event.event == "refused"}
    code, env = store.rows(CodeRow, id=row.code_id)[0], store.rows(EnvRow, id=row.env_id)[0]
    return Run(
        uid=row.uid,
        started=row.started,
        outcome=outcome,
        words=str(last.get("failed", {}).get("text", "")),
        command=row.command,
        model=row.model,
        timing_model=row.timing_model,
        model_sha256=row.model_sha256,
        machine_key=machine.key,
        machine=machine.facts,
        git_sha=code.git_sha,
        dirty=code.dirty,
        arms_sha256=code.arms_sha256,
        env_sha256=env.sha256,
        python=env.python,
        packages=env.packages,
        variables=env.variables,
        boot=row.boot,
        limits=MachineConf(**row.class_limits),
        profile=Profile(**fitted["profile"]) if fitted else None,
        ceilings=Ceilings(**last["ceilings"]) if "ceilings" in last else None,
        artifacts={name: Artifact(**each) for name, each in last.get("artifacts", {}).items()},
        samples=tuple(map(_sample, samples)),
        specs=tuple(RecipeSpec(**spec) for spec in last.get("recipes", {}).get("specs", ())),
        quality={each.recipe: _quality(each) for each in store.rows(ScorecardQualityRow, run_id=row.id)},
        refused=refused,
        notes=tuple(fitted["notes"]) if fitted else (),
        sensors=tuple(last.get("flight", {}).get("sensors", ())),
    )


def _sample(row: ScorecardSampleRow) -> Sample:
    return Sample(**{each.name: row.__dict__[each.name] for each in fields(Sample)})


def _quality(row: ScorecardQualityRow) -> Quality:
    """Its units as numbers: what is no number in the database becomes nan, and is judged where it is used."""
    return Quality(
        recipe=row.recipe,
        kl_units=tuple(map(number, row.kl_units)),
        nll_units=tuple(map(number, row.nll_units)),
        top1=row.top1,
        scored=row.scored,
        same_bits_as=row.same_bits_as,
        checked=row.checked,
    )


def number(value: object) -> float:
    """A stored number; nan for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
