"""Runs of tasks in the lab's database: a row a run, a row an item, groups of items whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from engine import errors
from evals.run import ItemResult, RunInfo
from lab.fingerprint import take
from lab.judge import document
from lab.store import Store, now
from lab.tables import EvalItemRow, EvalRunRow

_ITEM = [f.name for f in fields(ItemResult)]


class StoreLedger:
    """`label`: what the runs of one model and configuration are called together; model: as it was asked for."""

    def __init__(self, store: Store, *, label: str, model: str) -> None:
        self._store, self._label, self._model = store, label, model
        self._print = take()

    def groups(self, info: RunInfo) -> Mapping[int, Sequence[ItemResult]]:
        found: dict[int, list[ItemResult]] = {}
        for row in self._store.rows(EvalItemRow, eval_run_id=self._run(info)):
            found.setdefault(row.group_index, []).append(result_of(row))
        return found

    def put(self, info: RunInfo, group: int, results: Sequence[ItemResult]) -> None:
        run = self._run(info)
        self._store.add_all([_row(run, group, result) for result in results])

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


def result_of(row: EvalItemRow) -> ItemResult:
    values = {name: getattr(row, name) for name in _ITEM} | {"prompt_ids": tuple(row.prompt_ids)}
    return ItemResult(**values)


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
    return [
        result_of(row)
        for row in sorted(store.rows(EvalItemRow, eval_run_id=run.id), key=lambda r: (r.group_index, r.id))
    ]
