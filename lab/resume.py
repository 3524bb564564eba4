"""Which session a run may go on with after its process has died, what is left of it, and how many more there may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine import errors
from lab.config import LabConf
from lab.confirm import differences
from lab.design import Role
from lab.evidence import Events, begun, stored_conf
from lab.fingerprint import Fingerprint
from lab.record import read_samples
from lab.store import Store
from lab.tables import CodeRow, SessionRow, WorkloadRow
from oracles.contract import StackConfig


class NotResumable(errors.FrontierError):
    """There is no such session to go on with, or it would go on as something else."""


class SessionsSpent(errors.FrontierError):
    """An experiment has had the sessions that it may have: one more would be a retry until it wins."""


@dataclass(frozen=True)
class Left:
    """What a session left: `words` says how far it came."""

    row: SessionRow
    conf: LabConf
    arm_ids: Mapping[Role, int]
    token_ids: tuple[int, ...]
    words: str


def require_sessions_left(store: Store, conf: LabConf, print_: Fingerprint) -> None:
    """Raise `SessionsSpent` where `max_sessions` search sessions of the same source were begun on this machine: one
    that was stopped, or that failed, was a try as well. A profile that decides nothing may be run without end."""
    e, limit = conf.experiment, conf.thresholds.max_sessions
    rows = begun(store, e.name, print_.machine_key, conf.profile.name)
    codes = {row.id: row.arms_sha256 for row in store.rows(CodeRow)}
    same = [row for row in rows if codes[row.code_id] == print_.code.arms_sha256]
    if conf.profile.decides and len(same) >= limit:
        left = [row.uid for row in same if store.outcome(row.id) != "finished"]
        on = f" (did not end: {', '.join(left)}; frontier lab resume {e.name} goes on with one)" if left else ""
        raise SessionsSpent(
            f"{e.name} has had its {limit} sessions on {print_.machine_key} (thresholds.max_sessions){on}; "
            f"frontier lab decide {e.name} says what they come to"
        )


def unfinished(store: Store, name: str) -> list[SessionRow]:
    """The sessions of an experiment that did not end, oldest first."""
    return [row for row in store.sessions(name) if store.outcome(row.id) != "finished"]


def find(store: Store, name: str, uid: str | None) -> Left:
    """The session `uid`, or the newest of the experiment that did not end. Raises `NotResumable`."""
    rows = store.sessions(name)
    open_ = unfinished(store, name)
    if uid is None:
        if not open_:
            raise NotResumable(f"{name}: none of its {len(rows)} sessions is left to go on with")
        row = open_[-1]
    else:
        found = [row for row in rows if row.uid == uid]
        if not found:
            known = ", ".join(row.uid for row in open_) or "none"
            raise NotResumable(f"{name} has no session {uid}; left to go on with: {known}")
        row = found[0]
        if row.id not in [other.id for other in open_]:
            raise NotResumable(f"session {uid} is finished; frontier lab decide {name} judges it again")
    arms = Events.of(store, row.id).last("arms")
    if arms is None:
        raise NotResumable(f"session {row.uid} was recorded by an older version; run the experiment again")
    samples = read_samples(store, row.id)
    taken = {part: len({s.block for s in samples if s.part == part and not s.warm_up}) for part in ("aa", "ab")}
    token_ids = store.rows(WorkloadRow, id=row.workload_id)[0].token_ids
    return Left(
        row=row,
        conf=stored_conf(store, row),
        arm_ids={"base": arms["base"], "candidate": arms["candidate"]},
        token_ids=tuple(token_ids),
        words=f"{len(samples)} samples are kept ({taken['aa']} quads of A/A and {taken['ab']} of A/B were begun)",
    )


def require_same(
    store: Store,
    row: SessionRow,
    print_: Fingerprint,
    arms: Mapping[Role, StackConfig],
    model: str,
    model_sha256: str,
) -> None:
    """Raise `NotResumable` naming what is not as it was when the session began."""
    found = differences(store, row, print_, arms, model, model_sha256)
    if row.boot != print_.boot:
        found.append("boot: the machine was started anew since")
    if found:
        raise NotResumable(f"session {row.uid} would go on as something else: {'; '.join(found)}; run it anew")
