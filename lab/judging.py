"""Judges a search session from the database: itself, its confirmations, and everything else that counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from lab.evidence import (
    Events,
    begun,
    confirmations,
    confirmations_begun,
    machine_key,
    read_session,
    standing,
)
from lab.rivals import recipes_beside
from lab.store import Store
from lab.tables import SessionRow
from lab.targets import others_say_no
from lab.verdict import History, Judged, judge_experiment


@dataclass(frozen=True)
class Moment:
    """When a decision is made: the day, the expiry that holds, and, for a replay, what was not there yet."""

    as_of: date
    expires_on: str
    until: str = ""
    before: int | None = None


def judge_search(store: Store, name: str, search: SessionRow, moment: Moment) -> Judged:
    """Read a search session with its confirmations and everything else that counts, and judge it."""
    key = machine_key(store, search)

    def known(session: SessionRow) -> bool:
        return not moment.until or Events.of(store, session.id).when("measured") <= moment.until

    def was_begun(session: SessionRow) -> bool:
        return not moment.until or session.started <= moment.until

    measured = read_session(store, search)
    tries = confirmations_begun(store, name, search)
    again = [read_session(store, s) for s in confirmations(store, name, search) if known(s)]
    conf = measured.conf
    counts = standing(store, conf, moment.before).counts
    history = History(
        done=sum(was_begun(s) for s in begun(store, name, key, search.profile)),
        confirms=sum(was_begun(s) for s in tries),
        as_of=moment.as_of,
        expires_on=date.fromisoformat(moment.expires_on),
        others_no=others_say_no(conf.experiment.targets, counts, key),
    )
    return judge_experiment(measured, again, history, lambda: recipes_beside(store, search, measured, moment.until))
