"""Runs of tasks in the lab's database: a row a run, a row an item, groups of items whole or not at all.

Rows are never changed: an item that a later run could judge has a second row, which holds instead of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from engine import errors
from evals.run import ItemResult, RunInfo
from lab.fingerprint import take
from lab.judge import document
from lab.store import Store, now
from lab.tables import EvalAgainRow, EvalItemRow, EvalRunRow

_ITEM = [f.name for f in fields(ItemResult)]
# What a second row says anew; of an item that is judged.
_AGAIN = [name for name in _ITEM if name in EvalAgainRow.__table__.columns]


class StoreLedger:
    """`label`: what the runs of one model and configuration are called together; model: as it was asked for."""

    def __init__(self, store: Store, *, label: str, model: str) -> None:
        self._store, self._label, self._model = store, label, model
        self._print = take()

    def groups(self, info: RunInfo) -> Mapping[int, Sequence[ItemResult]]:
        found: dict[int, list[ItemResult]] = {}
        for row, result in _held(self._store, self._run(info)):
            found.setdefault(row.group_index, []).append(result)
        return found

    def put(self, info: RunInfo, group: int, results: Sequence[ItemResult]) -> None:
        run = self._run(info)
        self._store.add_all([_row(run, group, result) for result in results])

    def again(self, info: RunInfo, results: Sequence[ItemResult]) -> None:
        first = {row.item: row.id for row in self._store.rows(EvalItemRow, eval_run_id=self._run(info))}
        self._store.add_all([_again(first[result.item], result) for result in results])

    def _run(self, info: RunInfo) -> int:
        row = EvalRunRow(
            sha256=info.id,
            task=info.task,
            version=info.version,
            items=info.items,
            group_size=info.group,
            chance=info.chance,
            margin=info.margin,
            template_sha256=info.template_sha256,
            backend=dict(info.backend),
            label=self._label,
            model=self._model,
            code=document(self._print.code),
            packages=dict(self._print.packages),
            started=now(),
        )
        return self._store.once(row, sha256=info.id)


def _row(run: int, group: int, result: ItemResult) -> EvalItemRow:
    values = asdict(result) | {"prompt_ids": list(result.prompt_ids), "output_sha256": result.output_sha256}
    return EvalItemRow(eval_run_id=run, group_index=group, **values)


def _again(item: int, result: ItemResult) -> EvalAgainRow:
    values = {name: getattr(result, name) for name in _AGAIN} | {"prompt_ids": list(result.prompt_ids)}
    return EvalAgainRow(eval_item_id=item, at=now(), output_sha256=result.output_sha256, **values)


def _held(store: Store, run: int) -> list[tuple[EvalItemRow, ItemResult]]:
    """Each item's first row and what holds of it, in the order of their ids."""
    rows = store.rows(EvalItemRow, eval_run_id=run)
    later = {row.eval_item_id: row for row in store.rows(EvalAgainRow)} if any(row.not_run for row in rows) else {}
    return [(row, result_of(row, later.get(row.id))) for row in rows]


def result_of(row: EvalItemRow, later: EvalAgainRow | None = None) -> ItemResult:
    """later: the second row of the item, if it has one."""
    values = {name: getattr(row, name) for name in _ITEM}
    if later is not None:
        values |= {name: getattr(later, name) for name in _AGAIN} | {"not_run": False}
    return ItemResult(**values | {"prompt_ids": tuple(values["prompt_ids"])})


def info_of(row: EvalRunRow) -> RunInfo:
    """The run that a row is of."""
    return RunInfo(
        task=row.task,
        version=row.version,
        items=row.items,
        group=row.group_size,
        chance=row.chance,
        margin=row.margin,
        template_sha256=row.template_sha256,
        backend=row.backend,
    )


def find_runs(store: Store, name: str) -> dict[str, EvalRunRow]:
    """Task -> the newest run of it that `name` means: a label, or the beginning of a run's id.

    Raises `InvalidValue` where it means none.
    """
    rows = store.rows(EvalRunRow)
    found = [row for row in rows if row.label == name] or [row for row in rows if row.sha256.startswith(name)]
    if not found:
        known = sorted({row.label for row in rows})
        raise errors.InvalidValue("run", name, f"a label or the beginning of an id; labels: {known or 'none yet'}")
    return {row.task: row for row in found}


def read_items(store: Store, run: EvalRunRow) -> list[ItemResult]:
    """The results of a run, in the order of its items."""
    held = sorted(_held(store, run.id), key=lambda pair: (pair[0].group_index, pair[0].id))
    return [result for _, result in held]
