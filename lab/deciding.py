"""Decides from the database alone, and writes what was decided; judges old decisions again from their raw rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Literal

from engine import errors
from lab.config import LabConf
from lab.declared import EXPLORE
from lab.evidence import (
    Events,
    NotReadable,
    canonical,
    confirmations,
    confirmed_by,
    machine_key,
    otherwise,
    read_session,
    searches,
    stored_conf,
)
from lab.fidelity import FidelityRun
from lab.fingerprint import ROOT
from lab.judge import Comparison
from lab.judging import Moment, judge_search
from lab.record import comparison_row
from lab.store import Store, analysis_sha256, now
from lab.tables import DecisionRow, EnvRow, FidelityRow, SessionRow
from lab.verdict import Judged, cells_of, compare

Judge = Callable[[Store, str, SessionRow, Moment], Judged]


class NothingToDecide(errors.FrontierError):
    """No measured session of the experiment is in the database."""


@dataclass(frozen=True)
class Decided:
    """What was judged, and the comparisons of the session that was asked about. decision_id: None for an exploration,
    of which no decision is written."""

    judged: Judged
    comparisons: tuple[Comparison, ...]
    fidelity: tuple[FidelityRun, ...]
    decision_id: int | None
    session: str
    machine_key: str


@dataclass(frozen=True)
class Replayed:
    """One decision, judged again. stored, again: row, verdict, reasons and facts as canonical text; `again` is "" where
    the rows cannot be read any more, and `why` says so. other: what of the code is not what it was."""

    decision_id: int
    at: str
    stored_verdict: str
    verdict: str
    stored: str
    again: str
    other: tuple[str, ...]
    why: str

    @property
    def state(self) -> Literal["same", "other", "not readable"]:
        if not self.again:
            return "not readable"
        return "same" if self.stored == self.again else "other"

    @property
    def fault(self) -> bool:
        """Whether equal code read another verdict out of the rows: they are not those that were decided on."""
        return self.state == "other" and not self.other


def search_of(store: Store, session: SessionRow) -> SessionRow:
    """The search session that a session is, or confirms."""
    uid = confirmed_by(store, session)
    return store.rows(SessionRow, uid=uid)[0] if uid else session


def rewrite_comparisons(store: Store, session: SessionRow) -> tuple[list[int], tuple[Comparison, ...]]:
    """Drop the derived rows of a session and make them again from its samples."""
    measured = read_session(store, session)
    found = compare(measured, cells_of(measured))
    return store.replace_comparisons(session.id, [comparison_row(session.id, c) for c in found]), tuple(found)


def record_decision(store: Store, name: str, session: SessionRow, day: date) -> Decided:
    """Judge an experiment as of a day by one measured session, its search and its confirmations, and write the row.

    Raises `NotReadable`.
    """
    search = search_of(store, session)
    experiment = store.experiment(name)
    assert experiment is not None
    moment = Moment(day, experiment.expires_on)
    judged = judge_search(store, name, search, moment)
    rows = [search, *confirmations(store, name, search)]
    comparisons = {row.id: rewrite_comparisons(store, row) for row in rows}
    evidence = {
        "sessions": [row.uid for row in rows],
        "comparison": [i for ids, _ in comparisons.values() for i in ids],
        "fidelity": [row.id for row in store.rows(FidelityRow, session_id=search.id)],
        "expires_on": experiment.expires_on,
    }
    key = machine_key(store, search)
    decision_id = store.add(
        DecisionRow(
            experiment_id=experiment.id,
            session_id=session.id,
            machine_key=key,
            rule_row=judged.decision.row,
            verdict=judged.decision.verdict,
            reasons=list(judged.decision.reasons),
            facts=asdict(judged.facts),
            evidence=[evidence],
            as_of=day.isoformat(),
            at=now(),
            analysis_sha256=analysis_sha256(),
        )
    )
    measured = read_session(store, search)
    return Decided(judged, comparisons[session.id][1], measured.fidelity, decision_id, session.uid, key)


def record_exploration(store: Store, name: str, session: SessionRow, day: date) -> Decided:
    """Judge a session that was not measured as declared, and note what it came to as an event of that session alone.

    Raises `NotReadable`.
    """
    experiment = store.experiment(name)
    assert experiment is not None
    judged = judge_search(store, name, session, Moment(day, experiment.expires_on))
    _, comparisons = rewrite_comparisons(store, session)
    decision = judged.decision
    store.event(session.id, "explored", {"row": decision.row, "verdict": decision.verdict, "as_of": day.isoformat()})
    fidelity = read_session(store, session).fidelity
    return Decided(judged, comparisons, fidelity, None, session.uid, machine_key(store, session))


@dataclass(frozen=True)
class Sessions:
    """What there is to decide on. chosen: machine key -> the search session that is judged there; left_out: every other
    session of the experiment but confirmations, with the reason in words."""

    chosen: Mapping[str, SessionRow]
    left_out: tuple[str, ...]


def sessions_of(store: Store, name: str, declared: LabConf | None) -> Sessions:
    """The newest search session of each machine key that was measured as declared, of a profile that decides if there
    is one. declared: None where its file is gone, so that nothing is known to be otherwise."""
    measured = {session.id for session in searches(store, name)}
    by_key: dict[str, list[SessionRow]] = {}
    left_out = []
    for session in store.sessions(name):
        why = otherwise(store, session, declared)
        if why:
            left_out.append(why)
        elif session.id in measured:
            by_key.setdefault(machine_key(store, session), []).append(session)
        elif not Events.of(store, session.id).when("measured"):
            left_out.append(f"session {session.uid} was not measured to its end ({store.outcome(session.id)})")
    chosen = {}
    for key, mine in sorted(by_key.items()):
        full = [session for session in mine if stored_conf(store, session).profile.decides]
        chosen[key] = (full or mine)[-1]
        for session in mine:
            if session.id != chosen[key].id:
                why = (
                    "is older"
                    if session.id < chosen[key].id
                    else f"is of profile {session.profile}, which decides nothing"
                )
                left_out.append(f"session {session.uid} {why}; {chosen[key].uid} is judged")
    return Sessions(chosen, tuple(left_out))


def check_day(store: Store, name: str, day: date, today: date) -> None:
    """Refuse a day that is not yet, and one before the last that was measured, whose samples it could not know. Raises
    `InvalidValue`."""
    if day > today:
        raise errors.InvalidValue("--as-of", str(day), f"{today} at the latest, today")
    for session in store.sessions(name):
        last = datetime.fromisoformat(Events.of(store, session.id).when("measured") or session.started).date()
        if session.purpose != EXPLORE and last > day:
            allowed = f"{last} at the earliest: session {session.uid} was measured then and would be left out"
            raise errors.InvalidValue("--as-of", str(day), allowed)


def decide_again(
    store: Store, name: str, day: date, key: str | None = None, declared: LabConf | None = None
) -> tuple[list[Decided], tuple[str, ...]]:
    """Decide anew on each machine key that measured the experiment, or on `key`: (decisions, what was left out, in
    words). Raises `NothingToDecide`, `NotReadable`."""
    found = sessions_of(store, name, declared)
    if not found.chosen or (key is not None and key not in found.chosen):
        known = f"; measured on: {', '.join(found.chosen)}" if found.chosen else ""
        other = f"; left out: {'; '.join(found.left_out)}" if found.left_out else ""
        raise NothingToDecide(f"{name} has no measured session{f' on {key}' if key else ''}{known}{other}")
    decided = []
    for each in [key] if key else found.chosen:
        search = found.chosen[each]
        newest = [search, *confirmations(store, name, search)][-1]
        decided.append(record_decision(store, name, newest, day))
    return decided, found.left_out


def replay(store: Store, name: str, judge: Judge = judge_search) -> list[Replayed]:
    """Judge each decision again from raw rows alone, as of its own day and with what was known then. Derived rows are
    neither read nor written, so that a database may be read-only. Raises `NothingToDecide` where nothing was decided.
    """
    decisions = store.decisions(name)
    if not decisions:
        raise NothingToDecide(f"{name} has no decision to replay")
    return [_replay(store, name, decision, judge) for decision in decisions]


def _replay(store: Store, name: str, decision: DecisionRow, judge: Judge) -> Replayed:
    session = store.rows(SessionRow, id=decision.session_id)[0]
    stored = _said(decision.rule_row, decision.verdict, list(decision.reasons), decision.facts)
    verdict, again, why = "", "", ""
    try:
        search = search_of(store, session)
        judged = judge(store, name, search, _moment(decision))
        verdict = f"row {judged.decision.row}: {judged.decision.verdict}"
        again = _said(judged.decision.row, judged.decision.verdict, list(judged.decision.reasons), asdict(judged.facts))
    except NotReadable as error:
        why = str(error)
    return Replayed(
        decision_id=decision.id,
        at=decision.at,
        stored_verdict=f"row {decision.rule_row}: {decision.verdict}",
        verdict=verdict,
        stored=stored,
        again=again,
        other=tuple(_other_code(store, session, decision)),
        why=why,
    )


def _moment(decision: DecisionRow) -> Moment:
    evidence = decision.evidence[0] if decision.evidence else {}
    if "expires_on" not in evidence:
        raise NotReadable(f"decision {decision.id} was written by an older version, which did not note the expiry")
    return Moment(date.fromisoformat(decision.as_of), evidence["expires_on"], decision.at, decision.id)


def _said(row: str, verdict: str, reasons: list[Any], facts: Any) -> str:
    return canonical({"row": row, "verdict": verdict, "reasons": reasons, "facts": facts})


def _other_code(store: Store, session: SessionRow, decision: DecisionRow) -> list[str]:
    """What of the code that judges is not what it was."""
    found = []
    if decision.analysis_sha256 != analysis_sha256():
        found.append(f"analysis {decision.analysis_sha256[:12]} and {analysis_sha256()[:12]}")
    was, lock = store.rows(EnvRow, id=session.env_id)[0].lock_sha256, ROOT / "requirements.lock"
    is_ = hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else ""
    if was != is_:
        found.append(f"lock {was[:12] or 'none'} and {is_[:12] or 'none'}")
    return found
