"""Reads sessions back from the database, as what `lab.verdict` judges. Nothing here looks at a stored verdict."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from engine import errors
from lab.config import LabConf
from lab.declared import EXPLORE, measured_otherwise
from lab.design import Plan, make_plan
from lab.fidelity import FidelityRun
from lab.measure import QuadResult, Sample, group_quads
from lab.record import read_samples
from lab.stability import Session
from lab.store import Store
from lab.tables import (
    ArmRow,
    ConfigRow,
    DecisionRow,
    FidelityRow,
    MachineRow,
    SessionEventRow,
    SessionRow,
)
from lab.verdict import Measured


class NotReadable(errors.FrontierError):
    """A session of the database does not hold what a verdict needs."""


@dataclass(frozen=True)
class Events:
    """What happened to a session, oldest first."""

    rows: Sequence[SessionEventRow]

    @classmethod
    def of(cls, store: Store, session_id: int) -> Events:
        return cls(store.rows(SessionEventRow, session_id=session_id))

    def last(self, name: str) -> Mapping[str, Any] | None:
        """The detail of the newest event of that name."""
        return next((row.detail for row in reversed(self.rows) if row.event == name), None)

    def when(self, name: str) -> str:
        """When it last happened, as UTC ISO text; "" for never."""
        return next((row.at for row in reversed(self.rows) if row.event == name), "")

    @property
    def clocks(self) -> list[float]:
        """The CPU's clock behind each sample, in MHz; empty where the machine did not tell."""
        return [mhz for row in self.rows if row.event == "clocks" for mhz in row.detail["mhz"]]

    @property
    def sensors(self) -> list[dict[str, Any]]:
        """What every pre- and post-flight saw."""
        flights = [row for row in self.rows if row.event in ("preflight", "postflight")]
        return [dict(sensor) | {"when": row.event} for row in flights for sensor in row.detail["sensors"]]


def stored_conf(store: Store, session: SessionRow) -> LabConf:
    """The configuration of a session, as it was cut to fit. Raises `NotReadable` where this version cannot read it."""
    text = store.rows(ConfigRow, id=session.config_id)[0].resolved_yaml
    fitted = Events.of(store, session.id).last("fitted")
    try:
        return copy.deepcopy(_restored(text, canonical(fitted["profile"]) if fitted else ""))
    except OmegaConfBaseException as error:
        words = " ".join(str(error).split())
        raise NotReadable(f"session {session.uid} was configured by another version: {words}") from error


@functools.lru_cache(maxsize=32)
def _restored(text: str, profile: str) -> LabConf:
    """A configuration from its YAML and the JSON of its fitted profile. A session is read several times in a verdict,
    and this is slow."""
    merged = OmegaConf.merge(OmegaConf.structured(LabConf), OmegaConf.create(text))
    if profile:
        merged = OmegaConf.merge(merged, {"profile": json.loads(profile)})
    conf = OmegaConf.to_object(merged)
    assert isinstance(conf, LabConf)
    return conf


def plan_of(conf: LabConf, seed: str, quads: int) -> Plan:
    """The plan of a part, made again from its seed."""
    return make_plan(int(seed), quads, min(conf.profile.quads_per_launch, quads))


def machine_key(store: Store, session: SessionRow) -> str:
    return store.rows(MachineRow, id=session.machine_id)[0].key


def fidelity_runs(store: Store, session: SessionRow) -> tuple[FidelityRun, ...]:
    """The KL runs of a session. Raises `NotReadable` for rows of a version that did not store them whole."""
    found = []
    for row in store.rows(FidelityRow, session_id=session.id):
        if "run" not in row.document:
            raise NotReadable(f"session {session.uid}: its KL rows were written by an older version; run it again")
        run = dict(row.document["run"])
        document = {k: v for k, v in row.document.items() if k != "run"}
        found.append(FidelityRun(**run | {"reasons": tuple(run["reasons"])}, document=document))
    return tuple(found)


def read_session(store: Store, session: SessionRow) -> Measured:
    """One session as it was measured. Raises `NotReadable` unless it was measured to its end."""
    events = Events.of(store, session.id)
    ended = events.last("ab-done")
    fitted = events.last("fitted")
    if ended is None or fitted is None or events.last("measured") is None:
        raise NotReadable(f"session {session.uid} was not measured to its end ({store.outcome(session.id)})")
    conf, samples = stored_conf(store, session), read_samples(store, session.id)
    aa, aa_seed, shared = aa_quads(store, session, samples)
    return Measured(
        uid=session.uid,
        machine_key=machine_key(store, session),
        conf=conf,
        session=Session(
            aa=aa,
            ab=group_quads(samples, "ab"),
            warm=[s for s in samples if s.part == "pilot" and s.attempt == fitted["attempt"]],
            sensors=events.sensors,
            clocks=events.clocks,
            plans={
                "aa": plan_of(conf, aa_seed, conf.profile.aa_quads),
                "ab": plan_of(conf, session.ab_seed, conf.quads),
            },
        ),
        stopped=str(ended["stopped"]),
        aa_from=shared,
        fidelity=fidelity_runs(store, session),
    )


def aa_quads(store: Store, session: SessionRow, samples: Sequence[Sample]) -> tuple[list[QuadResult], str, str]:
    """(quads of the A/A, seed of its coins, session that it was taken over from or "")."""
    shared = Events.of(store, session.id).last("aa-shared")
    if shared is None:
        return group_quads(samples, "aa"), session.aa_seed, ""
    owner = store.rows(SessionRow, uid=shared["session"])[0]
    return group_quads(read_samples(store, owner.id), "aa"), owner.aa_seed, owner.uid


def shared_aa(store: Store, session: SessionRow, conf: LabConf) -> SessionRow | None:
    """The newest session whose A/A serves this one too, or None.

    It is not exploratory, has the same base arm, workload, machine, boot, environment, arm source and sizes, ended
    within `aa_hours`, and this experiment has not used it before: a rerun has an A/A of its own.
    """
    used = set()
    for other in store.rows(SessionRow, experiment_id=session.experiment_id):
        if other.id != session.id:
            used |= {other.uid, (Events.of(store, other.id).last("aa-shared") or {}).get("session")}
    since = datetime.fromisoformat(session.started) - timedelta(hours=conf.thresholds.aa_hours)
    same = {
        name: getattr(session, name) for name in ("machine_id", "env_id", "code_id", "workload_id", "boot", "profile")
    }
    base = base_arm(store, session)
    sizes = ("aa_quads", "quads_per_launch", "discard", "repeats")
    for other in reversed(store.rows(SessionRow, **same)):
        if other.purpose == EXPLORE:
            continue
        done = Events.of(store, other.id)
        if other.id >= session.id or other.uid in used or not done.when("aa-done"):
            continue
        if datetime.fromisoformat(done.when("aa-done")) < since or base_arm(store, other) != base:
            continue
        profile = stored_conf(store, other).profile
        if all(profile.__dict__[name] == conf.profile.__dict__[name] for name in sizes):
            return other
    return None


def base_arm(store: Store, session: SessionRow) -> str:
    """The hash of the base arm that a session ran."""
    return arm_hashes(store, session)["base"]


def arm_hashes(store: Store, session: SessionRow) -> dict[str, str]:
    """Role -> hash of the arm that a session ran, model bytes included."""
    noted = Events.of(store, session.id).last("arms")
    if noted is None:
        raise NotReadable(f"session {session.uid} was recorded by an older version, which did not note its arms")
    return {role: store.rows(ArmRow, id=arm_id)[0].sha256 for role, arm_id in noted.items()}


@dataclass(frozen=True)
class Standing:
    """The decisions on an experiment that count for what is declared, oldest first, and why each other one does not."""

    counts: tuple[DecisionRow, ...]
    left_out: tuple[str, ...]


def standing(store: Store, declared: LabConf, before: int | None = None) -> Standing:
    """The only place that says which decisions count: those whose session measured what is declared. before: only
    decisions with a lower id. An exploratory session has none."""
    counts, left_out = [], []
    for row in store.decisions(declared.experiment.name):
        if before is not None and row.id >= before:
            continue
        why = otherwise(store, store.rows(SessionRow, id=row.session_id)[0], declared)
        if why:
            left_out.append(f"decision {row.id} on {row.machine_key} ({row.verdict}): {why}")
        else:
            counts.append(row)
    return Standing(tuple(counts), tuple(left_out))


def otherwise(store: Store, session: SessionRow, declared: LabConf | None) -> str:
    """Why a session is no evidence for what is declared; "" where it is. declared: None where the file is gone."""
    if session.purpose == EXPLORE:
        return f"session {session.uid} is exploratory: {'; '.join(overrides_of(store, session))}"
    if declared is None:
        return ""
    try:
        other = measured_otherwise(stored_conf(store, session), declared)
    except NotReadable as error:
        return str(error)
    return f"session {session.uid} measured another experiment: {'; '.join(other)}" if other else ""


def overrides_of(store: Store, session: SessionRow) -> tuple[str, ...]:
    """What an exploratory session was told otherwise than declared."""
    return tuple((Events.of(store, session.id).last("exploratory") or {}).get("otherwise", ()))


def searches(store: Store, name: str, key: str | None = None) -> list[SessionRow]:
    """The measured search sessions of an experiment, oldest first, of one machine key or of all."""
    rows = [s for s in store.sessions(name) if s.purpose == "search" and Events.of(store, s.id).when("measured")]
    return [s for s in rows if key is None or machine_key(store, s) == key]


def begun(store: Store, name: str, key: str, profile: str) -> list[SessionRow]:
    """The search sessions of an experiment that were begun on a machine key, however they ended: each is a try."""
    rows = [s for s in store.sessions(name) if s.purpose == "search" and s.profile == profile]
    return [s for s in rows if machine_key(store, s) == key]


def confirmations(store: Store, name: str, search: SessionRow) -> list[SessionRow]:
    """The measured sessions that confirm a search session, oldest first."""
    rows = confirmations_begun(store, name, search)
    return [s for s in rows if Events.of(store, s.id).when("measured")]


def confirmations_begun(store: Store, name: str, search: SessionRow) -> list[SessionRow]:
    """The same, however they ended."""
    rows = [s for s in store.sessions(name) if s.purpose == "confirm"]
    return [s for s in rows if confirmed_by(store, s) == search.uid]


def confirmed_by(store: Store, session: SessionRow) -> str:
    """The uid of the search session that a confirmation is of; "" for a search session."""
    return str((Events.of(store, session.id).last("confirms") or {}).get("session", ""))


def canonical(value: object) -> str:
    """A document as text that is the same on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
