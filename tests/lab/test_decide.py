"""Every combination of facts meets exactly one row; words follow kind and machine."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from lab.decide import CELLS, CONFIRMED, GATES, GUARDRAILS, PRIMARIES, Facts, decide, match_row

BOOLS = (False, True)
FACTS = Facts(
    kind="ours",
    machine="quiet",
    quick=False,
    gate="pass",
    cell="stable",
    aa_failed=False,
    primary="win",
    guardrails="hold",
    confirmed="yes",
    removes_code=False,
    on_frontier=False,
    exhausted=False,
    counted=False,
    time_capped=False,
    others_no=True,
)


def rows_by_definition(f: Facts) -> list[str]:
    """The rows as conditions that exclude each other, written anew from the method's table."""
    past_gate = f.gate == "pass"
    steady = past_gate and f.cell != "unstable" and not f.aa_failed
    win, holds, worse = f.primary == "win", f.guardrails == "hold", f.guardrails == "worse"
    small = f.primary in ("small", "same")
    five = small and (not f.removes_code or f.guardrails != "unknown")
    rest = steady and not (win and (holds or worse)) and not five
    return [
        row
        for row, holds_here in (
            ("1", f.gate == "fail"),
            ("1b", f.gate == "undecided"),
            ("2", past_gate and not steady),
            ("3", steady and win and holds and f.confirmed == "yes"),
            ("4", steady and win and holds and f.confirmed == "not yet"),
            ("5", steady and five),
            ("6", steady and win and worse),
            (
                "7",
                (steady and win and holds and f.confirmed == "failed")
                or (rest and (f.primary == "loss" or f.exhausted)),
            ),
            ("8", rest and f.primary != "loss" and not f.exhausted),
        )
        if holds_here
    ]


def every() -> itertools.product[tuple[object, ...]]:
    return itertools.product(
        ("ours", "oracle-owned"), ("shared", "quiet"), BOOLS, GATES, CELLS, BOOLS, PRIMARIES, GUARDRAILS, CONFIRMED,
        BOOLS, (None, *BOOLS), BOOLS, BOOLS,
    )  # fmt: skip


def test_every_combination_meets_exactly_one_row() -> None:
    names = (
        "kind", "machine", "quick", "gate", "cell", "aa_failed", "primary", "guardrails", "confirmed", "removes_code",
        "on_frontier", "exhausted", "counted",
    )  # fmt: skip
    seen: Counter[str] = Counter()
    for values in every():
        facts = Facts(**dict(zip(names, values, strict=True)), time_capped=False)
        rows = rows_by_definition(facts)
        assert len(rows) == 1, (facts, rows)
        assert match_row(facts) == rows[0], facts
        decision = decide(facts)
        assert decision.row == rows[0]
        assert decision.verdict
        assert decision.reasons
        if facts.quick:
            assert decision.verdict == "undecided: quick profile"
        if facts.kind == "oracle-owned":
            assert "delete" not in decision.verdict
            assert "promote" not in decision.verdict
        seen[decision.row] += 1
    assert set(seen) == {"1", "1b", "2", "3", "4", "5", "6", "7", "8"}


@pytest.mark.parametrize(
    ("change", "row", "verdict"),
    [
        ({}, "3", "promote on this machine key"),
        ({"gate": "fail"}, "1", "delete: gate (one repair before expiry)"),
        ({"gate": "fail", "quick": True}, "1", "undecided: quick profile"),
        ({"gate": "fail", "others_no": False}, "1", "no gain on this machine key"),
        ({"gate": "undecided"}, "1b", "undecided: gate"),
        ({"aa_failed": True}, "2", "rerun"),
        ({"cell": "unstable", "exhausted": True}, "2", "delete: the cell is unstable"),
        ({"machine": "shared"}, "3", "screened-in, needs a quiet machine"),
        ({"machine": "shared", "identical": True, "strong": True}, "3", "promote on this machine key"),
        ({"machine": "shared", "counted": True}, "3", "promote on this machine key (counted)"),
        ({"kind": "oracle-owned"}, "3", "default on this machine key"),
        ({"opt_in_only": True}, "3", "opt-in (expiring)"),
        ({"confirmed": "not yet"}, "4", "confirm"),
        ({"confirmed": "failed"}, "7", "delete: a failed confirmation"),
        ({"primary": "small"}, "5", "delete: a gain below delta"),
        ({"primary": "same"}, "5", "delete: inside +-delta"),
        ({"primary": "same", "removes_code": True, "confirmed": "failed"}, "5", "delete: a failed confirmation"),
        ({"primary": "small", "removes_code": True}, "5", "promote on this machine key"),
        ({"primary": "same", "removes_code": True, "confirmed": "not yet"}, "5", "confirm"),
        ({"primary": "same", "removes_code": True, "guardrails": "worse"}, "5", "delete: inside +-delta"),
        ({"primary": "same", "removes_code": True, "guardrails": "unknown"}, "8", "undecided"),
        ({"guardrails": "worse"}, "6", "delete: a guardrail is worse"),
        ({"guardrails": "worse", "on_frontier": None}, "6", "undecided: frontier"),
        ({"guardrails": "worse", "on_frontier": None, "exhausted": True}, "6", "delete: a guardrail is worse"),
        ({"guardrails": "worse", "on_frontier": None, "kind": "oracle-owned"}, "6", "not default on this machine key"),
        ({"guardrails": "worse", "on_frontier": True}, "6", "opt-in (expiring)"),
        ({"guardrails": "unknown"}, "8", "undecided"),
        ({"guardrails": "unknown", "exhausted": True}, "7", "delete: still open"),
        ({"primary": "loss"}, "7", "delete: worse"),
        ({"primary": "loss", "kind": "oracle-owned"}, "7", "not default on this machine key"),
        ({"primary": "open", "time_capped": True}, "8", "undecided: time"),
        ({"primary": "open"}, "8", "undecided"),
    ],
)
def test_words(change: dict[str, object], row: str, verdict: str) -> None:
    decision = decide(replace(FACTS, **change))
    assert (decision.row, decision.verdict) == (row, verdict)
