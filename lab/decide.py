"""The decision table: facts in, row, verdict and reasons out. Pure, total, first match wins.

`Facts` holds categories; `lab.judge` makes them from numbers. An exception never reaches this module: a failed run has
no facts and so no verdict. Verdicts are per machine key: on a machine shared with others a timing primary only screens,
and code is deleted only once every target key has said no. For a lever that mlx-lm or optiq ships, the question is
whether it becomes the default here; its code stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Row = Literal["1", "1b", "2", "3", "4", "5", "6", "7", "8"]
Gate = Literal["pass", "fail", "undecided"]
Cell = Literal["stable", "unstable"]
Primary = Literal["win", "small", "same", "loss", "open"]
Guardrails = Literal["hold", "worse", "unknown"]
Confirmed = Literal["yes", "not yet", "failed"]

GATES: tuple[Gate, ...] = ("pass", "fail", "undecided")
CELLS: tuple[Cell, ...] = ("stable", "unstable")
PRIMARIES: tuple[Primary, ...] = ("win", "small", "same", "loss", "open")
GUARDRAILS: tuple[Guardrails, ...] = ("hold", "worse", "unknown")
CONFIRMED: tuple[Confirmed, ...] = ("yes", "not yet", "failed")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known at the end of a run.

    primary: "win" both tests pass and the estimate reaches delta; "small" the lower bound is above 0 and the estimate
    is not; "same" the interval lies inside +-delta; "loss" the upper bound is below 0; "open" anything else.
    exhausted: the full number of quads and sessions is spent, or the experiment has expired.
    on_frontier: the candidate stands on the frontier with P >= .9; None where that is not known. beside: of which other
    recipes, in words; "" where it was not judged.
    counted: the primary does not depend on the clock; drawn: it depends on seeds, not on the clock. identical:
    bit-identical outputs. strong: the lower bound reaches delta in both sessions. others_no: every other target key has
    said no already. opt_in_only: the gate passed within limits that its class does not allow for a default.
    """

    kind: Literal["ours", "oracle-owned"]
    machine: Literal["shared", "quiet"]
    quick: bool
    gate: Gate
    cell: Cell
    aa_failed: bool
    primary: Primary
    guardrails: Guardrails
    confirmed: Confirmed
    removes_code: bool
    on_frontier: bool | None
    exhausted: bool
    counted: bool
    time_capped: bool
    identical: bool = False
    strong: bool = False
    others_no: bool = False
    opt_in_only: bool = False
    drawn: bool = False
    beside: str = ""


@dataclass(frozen=True)
class Decision:
    """`row` of the table, the `verdict` in words, and each reason in a sentence."""

    row: Row
    verdict: str
    reasons: tuple[str, ...]

    @property
    def undecided(self) -> bool:
        return self.verdict.startswith("undecided")


def match_row(facts: Facts) -> Row:
    """The first row whose condition holds. Rows 2 to 8 are reached only past the gate."""
    if facts.gate == "fail":
        return "1"
    if facts.gate == "undecided":
        return "1b"
    if facts.cell == "unstable" or facts.aa_failed:
        return "2"
    if facts.primary == "win" and facts.guardrails == "hold":
        if facts.confirmed == "yes":
            return "3"
        return "7" if facts.confirmed == "failed" else "4"
    if facts.primary in ("small", "same") and not (facts.removes_code and facts.guardrails == "unknown"):
        return "5"
    if facts.primary == "win" and facts.guardrails == "worse":
        return "6"
    if facts.primary == "loss" or facts.exhausted:
        return "7"
    return "8"


def decide(facts: Facts) -> Decision:
    """Row, verdict and reasons. A quick run decides nothing, not even by its gate."""
    row = match_row(facts)
    reasons = (*_findings(facts), f"row {row}: {CONDITIONS[row]}")
    if facts.quick:
        return Decision(row, "undecided: quick profile", (*reasons, "a quick profile is too small to decide on"))
    verdict = _verdict(row, facts)
    return Decision(row, f"{verdict} (counted)" if facts.counted and row in "34567" else verdict, reasons)


CONDITIONS: dict[Row, str] = {
    "1": "identity, KL or eval gate fails",
    "1b": "a gate neither passes nor fails",
    "2": "the cell is unstable or its A/A failed",
    "3": "the primary wins, guardrails hold, confirmed",
    "4": "the primary wins, guardrails hold, not yet confirmed",
    "5": "a gain below delta, or no difference beyond delta",
    "6": "the primary wins and a guardrail is worse",
    "7": "worse, a failed confirmation, or still open when all quads and sessions are spent",
    "8": "anything else",
}


def _verdict(row: Row, facts: Facts) -> str:
    screens = facts.machine == "shared" and not (facts.counted or facts.drawn)
    if row == "1":
        return _no(facts, "delete: gate (one repair before expiry)")
    if row == "1b":
        return "undecided: gate"
    if row == "2":
        return _no(facts, "delete: the cell is unstable") if facts.exhausted else "rerun"
    if row == "3":
        if screens and not (facts.identical and facts.strong):
            return "screened-in, needs a quiet machine"
        return _yes(facts)
    if row == "4":
        return "confirm"
    if row == "5":
        why = "a failed confirmation" if facts.confirmed == "failed" else FIVE[facts.primary]
        if not (facts.removes_code and facts.guardrails == "hold") or facts.confirmed == "failed":
            return _no(facts, f"delete: {why}")
        return _yes(facts) if facts.confirmed == "yes" else "confirm"
    if row == "6":
        return _six(facts)
    if row == "7":
        return _no(facts, f"delete: {_why_seven(facts)}")
    return "undecided: time" if facts.time_capped else "undecided"


FIVE: dict[Primary, str] = {"small": "a gain below delta", "same": "inside +-delta"}


def _six(facts: Facts) -> str:
    """An oracle-owned lever can be asked for whatever the verdict is, so that only its default waits for the frontier;
    one of ours is not deleted before that was judged, except when the experiment ends."""
    if facts.on_frontier:
        return "opt-in (expiring)"
    if facts.on_frontier is None and facts.kind == "ours" and not facts.exhausted:
        return "undecided: frontier"
    return _no(facts, "delete: a guardrail is worse")


def _why_seven(facts: Facts) -> str:
    if facts.primary == "loss":
        return "worse"
    return "a failed confirmation" if facts.primary == "win" and facts.guardrails == "hold" else "still open"


def _yes(facts: Facts) -> str:
    if facts.opt_in_only:
        return "opt-in (expiring)"
    return "default on this machine key" if facts.kind == "oracle-owned" else "promote on this machine key"


def _no(facts: Facts, delete: str) -> str:
    if facts.kind == "oracle-owned":
        return "not default on this machine key"
    return delete if facts.others_no else "no gain on this machine key"


def _asks_frontier(facts: Facts) -> bool:
    return facts.on_frontier is None and facts.primary == "win" and facts.guardrails == "worse"


def _findings(facts: Facts) -> tuple[str, ...]:
    primary = {
        "win": "the primary wins by at least delta",
        "small": "the primary gains, but less than delta",
        "same": "the primary's interval lies inside +-delta",
        "loss": "the primary is worse",
        "open": "the primary is open",
    }[facts.primary]
    return (
        f"gate: {facts.gate}",
        f"cell: {facts.cell}{', A/A failed' if facts.aa_failed else ''}",
        f"{primary}{' (counted)' if facts.counted else ''}",
        f"guardrails: {facts.guardrails}",
        f"confirmed: {facts.confirmed}",
        *(("the gate allows opt-in use only",) if facts.opt_in_only else ()),
        *((f"{'on' if facts.on_frontier else 'not on'} the frontier beside {facts.beside}",) if facts.beside else ()),
        *(("the time cap ended the run between two looks",) if facts.time_capped else ()),
        *(("too few launches, or no gate, to say whether it is on the frontier",) if _asks_frontier(facts) else ()),
    )
