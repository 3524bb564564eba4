"""What decisions say about an experiment as a whole: each machine key by its latest one. Pure, and the only rule there
is of what a key and a target have said.

A target is a beginning of machine keys and may hold several of them; it has said no only if each of its keys has.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.tables import DecisionRow

YES = ("promote on", "default on")
NO = ("no gain", "not default", "delete")
OPT_IN = ("opt-in",)
QUICK = "undecided: quick profile"
GATE_ROW = "1"


def says_yes(verdict: str) -> bool:
    """The candidate becomes the default on that machine key."""
    return verdict.startswith(YES)


def says_no(verdict: str) -> bool:
    """The candidate is of no use on that machine key."""
    return verdict.startswith(NO)


def is_decided(verdict: str) -> bool:
    """An end: a candidate that was only screened, and one that waits for another session, are none."""
    return verdict.startswith((*YES, *NO, *OPT_IN))


def is_quick(decision: DecisionRow) -> bool:
    """Whether a quick profile said it, which decides nothing and takes nothing back, whatever its words are."""
    return bool(decision.facts.get("quick")) or decision.verdict == QUICK


def latest(decisions: Sequence[DecisionRow]) -> dict[str, DecisionRow]:
    """Machine key -> the last decision that counts there."""
    return {row.machine_key: row for row in decisions if not is_quick(row)}


def by_target(targets: Sequence[str], decisions: Sequence[DecisionRow]) -> dict[str, tuple[DecisionRow, ...]]:
    """Target -> the last decision of each machine key that begins with it; none where nothing was decided."""
    rows = latest(decisions).values()
    return {target: tuple(row for row in rows if row.machine_key.startswith(target)) for target in targets}


def all_say_no(targets: Sequence[str], decisions: Sequence[DecisionRow]) -> bool:
    """Every target has said no, on each of its keys: only then is code removed."""
    return others_say_no(targets, decisions, None)


def others_say_no(targets: Sequence[str], decisions: Sequence[DecisionRow], key: str | None) -> bool:
    """Every target has said no, what `key` says apart: the target that it belongs to may have no other key."""
    found = by_target(targets, [row for row in decisions if row.machine_key != key])
    asked = [target for target in targets if key is None or not key.startswith(target)]
    said = [row for rows in found.values() for row in rows]
    return all(says_no(row.verdict) for row in said) and all(found[target] for target in asked)


def all_say_yes(targets: Sequence[str], decisions: Sequence[DecisionRow]) -> bool:
    """Every target takes the candidate, on each of its keys: nothing needs the losing path any more."""
    found = by_target(targets, decisions).values()
    return all(rows and all(says_yes(row.verdict) for row in rows) for rows in found)


def failed_gates(decisions: Sequence[DecisionRow]) -> list[DecisionRow]:
    """The keys whose latest decision is that the gate fails."""
    return [row for row in latest(decisions).values() if row.rule_row == GATE_ROW]
