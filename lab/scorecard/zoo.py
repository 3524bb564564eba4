"""What `frontier zoo check` measured, in the lab's database, and the newest of it for each model."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from lab.fingerprint import Fingerprint, platform_of
from lab.record import add_code, add_env, add_machine
from lab.scorecard.card import ZooModel
from lab.scorecard_tables import ZooCheckRow
from lab.store import Store, now
from lab.tables import CodeRow, MachineRow
from lab.zoo.recipe import Recipe


class ZooRun:
    """One `frontier zoo check`: each model is stored as soon as it is measured."""

    def __init__(self, store: Store, print_: Fingerprint, size: str, baseline: float) -> None:
        self._store = store
        self._shared: dict[str, Any] = {
            "machine_id": add_machine(store, print_),
            "env_id": add_env(store, print_),
            "code_id": add_code(store, print_),
            "run": secrets.token_hex(6),
            "size": size,
            "baseline": baseline,
        }

    def keep(self, recipe: Recipe, command: str, measured: Mapping[str, Any], untrue: Sequence[str]) -> None:
        """One row of the database. command: what measures this model again."""
        row = ZooCheckRow(
            **self._shared,
            at=now(),
            command=command,
            model=recipe.name,
            about=recipe.about,
            measured=dict(measured),
            untrue=list(untrue),
        )
        self._store.add_all([row])


def checked_here(store: Store, key: str) -> bool:
    """Whether a check of the zoo was made on this very machine key."""
    machines = {row.id for row in store.rows(MachineRow, key=key)}
    return any(row.machine_id in machines for row in store.rows(ZooCheckRow))


def read_zoo(store: Store, key: str) -> list[ZooModel]:
    """Every model that was checked on this kind of machine, by name; the BLAS may be another, as with suites."""
    machines = {row.id: row.key for row in store.rows(MachineRow) if platform_of(row.key) == platform_of(key)}
    found: dict[str, list[ZooCheckRow]] = {}
    for row in store.rows(ZooCheckRow):
        if row.machine_id in machines:
            found.setdefault(row.model, []).append(row)
    return [_model(store, newest(rows), machines) for _, rows in sorted(found.items())]


def newest(rows: Sequence[ZooCheckRow]) -> ZooCheckRow:
    """The newest check of a model. A quick one whose claims hold hides no full one of the same weights."""
    last = rows[-1]
    same = [row for row in rows if row.measured["sha256"] == last.measured["sha256"]]
    full = [row for row in same if row.size == "full"]
    return full[-1] if full and not last.untrue else last


def _model(store: Store, row: ZooCheckRow, machines: Mapping[int, str]) -> ZooModel:
    code = store.rows(CodeRow, id=row.code_id)[0]
    return ZooModel(
        name=row.model,
        about=row.about,
        size=row.size,
        baseline=row.baseline,
        measured=row.measured,
        untrue=tuple(row.untrue),
        run=row.run,
        at=row.at,
        command=row.command,
        code=f"{code.git_sha[:12]}{' (dirty)' if code.dirty else ''}",
        machine_key=machines[row.machine_id],
    )
