"""Scores of tasks that `frontier eval` kept, for the models of the page."""

from __future__ import annotations

from collections.abc import Collection

from lab.eval_ledger import info_of, read_items
from lab.eval_scores import summary
from lab.scorecard.card import Score
from lab.store import Store
from lab.tables import EvalRunRow


def read_scores(store: Store, models: Collection[str]) -> list[Score]:
    """The newest run of each task of each label whose model is one of `models`."""
    newest: dict[tuple[str, str], EvalRunRow] = {}
    for row in store.rows(EvalRunRow):
        if row.model in models:
            newest[row.label, row.task] = row
    return [_score(store, row) for _, row in sorted(newest.items())]


def _score(store: Store, row: EvalRunRow) -> Score:
    found = summary(info_of(row), read_items(store, row))
    git = str(row.code.get("git_sha", ""))[:12]
    return Score(
        label=row.label,
        task=row.task,
        run=row.sha256,
        judged=found["judged"],
        items=row.items,
        score=found["score"],
        low=found["low"],
        high=found["high"],
        floor=bool(found["at_floor"]),
        facts={
            "Model": row.model,
            "Backend": ", ".join(f"{name} {value}" for name, value in sorted(row.backend.items())),
            "Started": row.started,
            "Commit": f"{git}{' (dirty)' if row.code.get('dirty') else ''}",
        },
    )
