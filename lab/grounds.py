"""The rows that a decision stands on, as lines with their ids and numbers: printed by a step, kept in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.judge import percent
from lab.store import Store
from lab.tables import ComparisonRow, DecisionRow, FidelityRow, SessionRow


@dataclass(frozen=True)
class Evidence:
    """One row of the database by table and id; `words` hold its numbers."""

    table: str
    id: int
    words: str

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def gather(store: Store, decisions: Sequence[DecisionRow]) -> list[Evidence]:
    """Each decision with the comparisons and KL runs of its session, A/A apart."""
    found = []
    for row in decisions:
        session = store.rows(SessionRow, id=row.session_id)[0]
        words = f"{row.machine_key}: row {row.rule_row}, {row.verdict} (as of {row.as_of}, session {session.uid})"
        found.append(Evidence("decision", row.id, words))
        found += [
            Evidence("comparison", each.id, comparison_words(each))
            for each in store.rows(ComparisonRow, session_id=row.session_id)
            if each.use != "aa"
        ]
        found += [
            Evidence("fidelity", each.id, fidelity_words(each))
            for each in store.rows(FidelityRow, session_id=row.session_id)
        ]
    return found


def comparison_words(row: ComparisonRow) -> str:
    """`primary decode_tok_s: +3.1 % (+1.0 % to +5.2 %), 32 quads in 16 launches, p Wilcoxon 0.0021`."""
    estimate = "no estimate" if row.estimate is None else percent(row.estimate)
    head = f"{row.use} {row.metric}: {row.document.get('state', '')} {estimate}".replace("  ", " ")
    if row.method == "counted":
        return f"{head}, counted"
    bounds = [("unbounded" if bound is None else percent(bound)) for bound in (row.low, row.high)]
    p = "" if row.p_wilcoxon is None else f", p Wilcoxon {row.p_wilcoxon:.4f}"
    return f"{head} ({bounds[0]} to {bounds[1]}), {row.quads} quads in {row.launches} launches{p}"


def fidelity_words(row: FidelityRow) -> str:
    """`KL step: PASS, mean 1.2e-04 nats over 2048/2048 positions`."""
    return f"KL {row.protocol}: {row.status}, mean {row.kl_mean:.1e} nats over {row.counted}/{row.total} positions"
