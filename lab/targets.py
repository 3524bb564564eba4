"""What decisions say about an experiment as a whole: each target key by its latest one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lab.config import ExperimentConf
from lab.tables import DecisionRow

YES = ("promote on", "default on")
NO = ("no gain", "not default", "delete")
OPT_IN = ("opt-in",)
QUICK = "undecided: quick profile"


def says_yes(verdict: str) -> bool:
    """The candidate becomes the default on that machine key."""
    return verdict.startswith(YES)


def says_no(verdict: str) -> bool:
    """The candidate is of no use on that machine key."""
    return verdict.startswith(NO)


def is_decided(verdict: str) -> bool:
    """An end: a candidate that was only screened, and one that waits for another session, are none."""
    return verdict.startswith((*YES, *NO, *OPT_IN))


def latest(decisions: Sequence[DecisionRow]) -> dict[str, DecisionRow]:
    """Machine key -> its last decision. What a quick profile says leaves an earlier one standing."""
    return {row.machine_key: row for row in decisions if row.verdict != QUICK}


def by_target(experiment: ExperimentConf, decisions: Sequence[DecisionRow]) -> dict[str, DecisionRow | None]:
    """Target -> the last decision on any machine key that begins with it; None where nothing was decided."""
    rows = sorted(latest(decisions).values(), key=lambda row: row.id)
    return {
        target: next((row for row in reversed(rows) if row.machine_key.startswith(target)), None)
        for target in experiment.targets
    }


def all_say_no(experiment: ExperimentConf, decisions: Sequence[DecisionRow]) -> bool:
    """Every target has said no: only then is code removed."""
    return all(row is not None and says_no(row.verdict) for row in by_target(experiment, decisions).values())


def all_say_yes(experiment: ExperimentConf, decisions: Sequence[DecisionRow]) -> bool:
    """Every target takes the candidate: nothing needs the losing path any more."""
    return all(row is not None and says_yes(row.verdict) for row in by_target(experiment, decisions).values())
