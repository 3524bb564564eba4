"""Runs of the parity suites in the lab's database, and what the newest one of each suite said."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import errors
from lab.fingerprint import Fingerprint, platform_of
from lab.modules import read_results
from lab.record import add_code, add_machine
from lab.scorecard.card import Suite
from lab.store import Store, digest, now
from lab.tables import CodeRow, GoldenRow, MachineRow, ParityCellRow
from oracles.arch import RESULTS
from oracles.parity import BAD, EQUAL, CellResult

SHOWN_FAULTS = 5


@dataclass(frozen=True)
class Known:
    """A suite as the page names it, and the command that runs it."""

    about: str
    command: str


SUITES = {
    "tiny": Known("families, dtypes, packings, chunks and schemes on tiny models", "frontier parity --suite tiny"),
    "kv": Known("every KV scheme that an oracle has, over every kind of cache", "frontier parity --suite kv"),
    "batch": Known("rows that come together, of every module", "frontier parity --suite batch"),
    "device": Known("every kind of graph, dense and packed, in every batch mode", "frontier parity --suite device"),
    "model": Known("a real model", "frontier parity --suite model"),
    "architectures": Known("every module of mlx-lm in every form", "python -m oracles.arch --all --full --record"),
}


def record_suite(
    store: Store,
    print_: Fingerprint,
    suite: str,
    command: str,
    blas: str,
    results: Iterable[CellResult],
    *,
    quick: bool = False,
) -> str:
    """Store the cells of one run of a suite, all of them or none; returns the run's id. `blas`: of the workers, which
    names the machine key; quick: a small part of the suite. Raises `UnknownField` for a suite that the page does not
    know."""
    if suite not in SUITES:
        raise errors.UnknownField("parity suites", suite, SUITES)
    run, at = secrets.token_hex(6), now()
    machine_id, code_id = add_machine(store, with_blas(print_, blas)), add_code(store, print_)
    shared = {"suite": suite, "run": run, "command": command, "blas": blas, "quick": quick}
    rows = [
        ParityCellRow(
            machine_id=machine_id, code_id=code_id, at=at, cell=shared | result.as_dict(), status=result.status
        )
        for result in results
    ]
    store.add_all(rows)
    return run


def with_blas(print_: Fingerprint, blas: str) -> Fingerprint:
    """The fingerprint of workers that run on another BLAS than this process. Only MLX's own has a key that is known
    without loading it."""
    if print_.machine.get("device") != "cpu" or print_.machine.get("blas") == blas:
        return print_
    if blas != "bundled":
        raise errors.InvalidValue("blas", blas, ("bundled", str(print_.machine.get("blas"))))
    key = f"{platform_of(print_.machine_key)}-bundled"
    return replace(print_, machine_key=key, machine=dict(print_.machine) | {"key": key, "blas": blas})


def record_architectures(store: Store, path: Path = RESULTS) -> None:
    """Take the recorded cells of mlx-lm's modules (a file of the repository) into the database, once for each state."""
    results = read_results(path)
    if results is None:
        return
    modules = results["modules"]
    faulty = sorted(name for name, entry in modules.items() if entry["faulty"])
    manifest = {
        "suite": "architectures",
        "commit": str(results.get("commit", "")),
        "versions": results.get("versions", {}),
        **{count: sum(entry[count] for entry in modules.values()) for count in ("equal", "not_run", "faulty")},
        "faults": faulty,
    }
    sha, key = digest(results), str(results.get("machine", ""))
    where = f"goldens/{path.name}"
    store.once(GoldenRow(machine_key=key, path=where, sha256=sha, manifest=manifest, at=now()), path=where, sha256=sha)


def read_suites(store: Store, key: str) -> list[Suite]:
    """Every suite, run or not, as its newest run on this kind of machine left it.

    Bits are claimed with MLX's own BLAS, so that runs count of any key that differs from `key` in its BLAS alone.
    """
    machines = {row.id: row.key for row in store.rows(MachineRow) if platform_of(row.key) == platform_of(key)}
    runs: dict[str, dict[str, list[ParityCellRow]]] = {}
    for row in store.rows(ParityCellRow):
        if row.machine_id in machines:
            runs.setdefault(str(row.cell["suite"]), {}).setdefault(str(row.cell["run"]), []).append(row)
    golden = [row for row in store.rows(GoldenRow) if platform_of(row.machine_key) == platform_of(key)]
    recorded = [row for row in golden if row.manifest.get("suite") == "architectures"]
    found = []
    for name, known in SUITES.items():
        if name == "architectures" and recorded:
            found.append(_recorded(recorded[-1], known))
        else:
            shown = newest(list(runs.get(name, {}).values()))
            found.append(_suite(store, name, known, shown, machines))
    return found


def newest(runs: Sequence[Sequence[ParityCellRow]]) -> Sequence[ParityCellRow]:
    """The newest run of a suite. A quick one without a fault does not hide the last whole one."""
    for run in reversed(runs):
        if not run[0].cell.get("quick") or any(row.status in BAD for row in run):
            return run
    return runs[-1] if runs else ()


def _suite(store: Store, name: str, known: Known, rows: Sequence[ParityCellRow], machines: Mapping[int, str]) -> Suite:
    if not rows:
        return Suite(name, known.about, known.command)
    counts = Counter(row.status for row in rows)
    faulty = sum(counts[status] for status in BAD)
    first = rows[0]
    return Suite(
        name=name,
        about=known.about,
        command=str(first.cell["command"]),
        at=first.at,
        code=_code(store, first.code_id),
        machine_key=machines[first.machine_id],
        equal=counts[EQUAL],
        not_run=len(rows) - counts[EQUAL] - faulty,
        faulty=faulty,
        run=str(first.cell["run"]),
        faults=tuple(_words(row.cell, row.status) for row in rows if row.status in BAD)[:SHOWN_FAULTS],
    )


def _recorded(row: GoldenRow, known: Known) -> Suite:
    held = row.manifest
    return Suite(
        name="architectures",
        about=known.about,
        command=known.command,
        at=row.at,
        taken_in=True,
        code=str(held["commit"])[:12],
        machine_key=row.machine_key,
        equal=int(held["equal"]),
        not_run=int(held["not_run"]),
        faulty=int(held["faulty"]),
        run=row.sha256[:12],
        faults=tuple(held["faults"])[:SHOWN_FAULTS],
    )


def _code(store: Store, code_id: int) -> str:
    row = store.rows(CodeRow, id=code_id)[0]
    return f"{row.git_sha[:12]}{' (dirty)' if row.dirty else ''}"


def _words(cell: Mapping[str, Any], status: str) -> str:
    what = f"{cell['model']} {cell['dtype']} {cell['kv']} {cell['kind']}, {cell['prompt']}+{cell['steps']}"
    return f"{what}, {cell['reference']}: {status} {cell['why']}".strip()
