"""Device benches in the lab's database: samples as they are taken, what is done already, and a file that carries them
from one machine's database to another's.

Samples belong together if everything but the clock was equal: machine key, versions, the source of both arms, the
model's folder (which is named by a hash of all that made it), sizes and levers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import errors
from lab.batch_bench import BatchSample
from lab.bench_tables import BenchEventRow, BenchRunRow, BenchSampleRow
from lab.device_bench import arms_of
from lab.device_parity import FORMAT as PARITY_FORMAT
from lab.device_parity import take_in_cells
from lab.device_plan import Cell, Turn
from lab.fingerprint import Fingerprint, stated
from lab.judge import document
from lab.measure import group_quads
from lab.noted import Noted
from lab.paired import QUADS_PER_LAUNCH
from lab.record import add_code, add_env, add_machine
from lab.scrub import scrub
from lab.store import Store, digest, now
from lab.tables import CodeRow, EnvRow, MachineRow

TASK = "device"
FORMAT = "mlx-frontier device bench 1"
SAMPLE_FIELDS = tuple(f.name for f in fields(BatchSample))


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What samples of one machine depend on. folders: (model, packing) -> folder."""

    print: Fingerprint
    folders: Mapping[tuple[str, str], Path]
    blas: str

    def sha256(self, cell: Cell) -> str:
        """Of one cell: equal for samples that may be put together."""
        folder = self.folders[cell.group.model, cell.group.packing]
        arms = {
            role: stated(arm) | {"model": folder.name}
            for role, arm in arms_of(cell.group, folder, "ab", self.blas).items()
        }
        packages = {name: self.print.packages.get(name) for name in ("mlx", "mlx-lm")}
        key, source = self.print.machine_key, self.print.code.arms_sha256
        return digest([key, source, packages, cell.prompt, cell.rows, cell.tokens, document(arms)])


class DeviceRun(Noted):
    """One call's rows. As a context it notes how the call ended, and lets an error pass."""

    def __init__(self, store: Store, run_id: int, setup: Setup) -> None:
        self.store, self.run_id, self._setup = store, run_id, setup

    @classmethod
    def begin(cls, store: Store, setup: Setup, about: Mapping[str, Any], command: str) -> DeviceRun:
        """Insert the row of a new run."""
        print_ = setup.print
        row = BenchRunRow(
            uid=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
            machine_id=add_machine(store, print_),
            env_id=add_env(store, print_),
            code_id=add_code(store, print_),
            task=TASK,
            about=document(dict(about)),
            command=command,
            boot=print_.boot,
            started=now(),
        )
        store.reserve()
        return cls(store, store.add(row), setup)

    def sample(self, cell: Cell, part: str, launch: int, values: Mapping[str, object]) -> None:
        row = BenchSampleRow(
            run_id=self.run_id,
            cell=cell.name,
            setup_sha256=self._setup.sha256(cell),
            part=part,
            launch=launch,
            document=document(dict(values)),
        )
        self.store.add(row)

    def refused(self, cell: Cell, why: str) -> None:
        """A side cannot do this cell, in its own words."""
        self.event("refused", {"cell": cell.name, "setup": self._setup.sha256(cell), "why": why})

    def event(self, name: str, detail: Mapping[str, object]) -> None:
        self.store.add(BenchEventRow(run_id=self.run_id, at=now(), event=name, detail=dict(detail)))


def as_sample(row: BenchSampleRow) -> BatchSample:
    """The sample of a row of part "ab" or "aa". A field that came later than the row has its default."""
    values = {name: row.document[name] for name in SAMPLE_FIELDS if name in row.document}
    return BatchSample(**values | {name: tuple(values[name]) for name in ("ttfts_s", "gaps_s")})


def whole_launches(rows: Sequence[BenchSampleRow]) -> dict[int, list[BatchSample]]:
    """Launch -> its last samples, of those whose quads are all there and valid. rows: of one cell and part."""
    by_run: dict[tuple[int, int], list[BatchSample]] = {}
    for row in rows:
        by_run.setdefault((row.launch, row.run_id), []).append(as_sample(row))
    found = {}
    for (launch, _), samples in sorted(by_run.items()):
        quads = group_quads(samples, samples[0].part)
        if len(quads) == QUADS_PER_LAUNCH and all(quad.valid for quad in quads):
            found[launch] = samples
    return found


def taken(store: Store, setup: Setup, turns: Iterable[Turn]) -> tuple[list[Turn], dict[str, float]]:
    """The turns that are left, each with the cells that are left of it, and cell -> mean seconds of its samples.

    A cell that a side refused under an equal setup is not tried again.
    """
    shas = {cell.name: setup.sha256(cell) for turn in turns for cell in turn.cells}
    rows = [row for row in store.rows(BenchSampleRow) if shas.get(row.cell) == row.setup_sha256]
    refused = {
        str(event.detail.get("cell"))
        for event in store.rows(BenchEventRow, event="refused")
        if event.detail.get("setup") in shas.values()
    }
    done: set[tuple[str, str, int]] = set()
    seen: dict[str, float] = {}
    for name in {row.cell for row in rows}:
        for part in ("ab", "aa"):
            of_part = [row for row in rows if (row.cell, row.part) == (name, part)]
            done |= {(name, part, launch) for launch in whole_launches(of_part)}
        times = [as_sample(row).sample_s for row in rows if row.cell == name and row.part != "host"]
        if times:
            seen[name] = sum(times) / len(times)
    left = []
    for turn in turns:
        cells = tuple(c for c in turn.cells if (c.name, turn.part, turn.launch) not in done and c.name not in refused)
        if cells:
            left.append(Turn(group=turn.group, part=turn.part, launch=turn.launch, cells=cells, host=turn.host))
    return left, seen


def export(store: Store, machine_key: str) -> list[dict[str, Any]]:
    """All runs of a machine key as documents, each with its events and samples."""
    machines = {row.id: row for row in store.rows(MachineRow) if row.key == machine_key}
    envs, codes = ({row.id: row for row in store.rows(kind)} for kind in (EnvRow, CodeRow))
    found = []
    for run in store.rows(BenchRunRow, task=TASK):
        if run.machine_id in machines:
            rows = {"machine": machines[run.machine_id], "env": envs[run.env_id], "code": codes[run.code_id]}
            found.append(
                {"format": FORMAT, "run": _plain(run) | {"command": scrub(run.command)}}
                | {name: _plain(row) for name, row in rows.items()}
                | {"events": [_plain(row) for row in store.rows(BenchEventRow, run_id=run.id)]}
                | {"samples": [_plain(row) for row in store.rows(BenchSampleRow, run_id=run.id)]}
            )
    return found


def write_export(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """One document a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(run, sort_keys=True) + "\n" for run in runs), encoding="utf-8")


def take_in(store: Store, path: Path) -> tuple[int, int]:
    """Put the runs, or the parity cells, of an exported file into the database; (new, known already).

    Errors: `CorruptFile` for another file; nothing of it is then taken in.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        formats = {str(row.get("format")) for row in rows}
    except (ValueError, AttributeError) as error:
        raise errors.CorruptFile(path, f"not runs of a device bench: {error}") from error
    if formats == {PARITY_FORMAT}:
        return take_in_cells(store, rows)
    if formats != {FORMAT}:
        raise errors.CorruptFile(path, f"not runs of a device bench: formats {sorted(formats)} instead of {FORMAT!r}")
    try:
        for run in rows:
            _rows_of(run, 0, {})
    except (KeyError, TypeError) as error:
        raise errors.CorruptFile(path, f"not whole runs of a device bench: {error!r}") from error
    known = {row.uid for row in store.rows(BenchRunRow)}
    fresh = [run for run in rows if run["run"]["uid"] not in known]
    for run in fresh:
        _take_in(store, run)
    return len(fresh), len(rows) - len(fresh)


def _take_in(store: Store, run: Mapping[str, Any]) -> None:
    ids = {
        f"{name}_id": store.once(kind(**run[name]), sha256=run[name]["sha256"])
        for name, kind in (("machine", MachineRow), ("env", EnvRow), ("code", CodeRow))
    }
    run_id = store.add(_rows_of(run, 0, ids)[0])
    store.add_all(_rows_of(run, run_id, ids)[1:])


def _rows_of(run: Mapping[str, Any], run_id: int, ids: Mapping[str, int]) -> list[Any]:
    """The run, its events and its samples as rows. Raises `KeyError` and `TypeError` for what is not such a run."""
    for name, kind in (("machine", MachineRow), ("env", EnvRow), ("code", CodeRow)):
        kind(**run[name])
    events = [BenchEventRow(**event | {"run_id": run_id}) for event in run["events"]]
    samples = [BenchSampleRow(**sample | {"run_id": run_id}) for sample in run["samples"]]
    return [BenchRunRow(**run["run"] | ids), *events, *samples]


def _plain(row: Any) -> dict[str, Any]:
    """A row's own columns; keys into other tables are given anew where it is taken in."""
    return {
        c.name: row.__dict__[c.name] for c in row.__table__.columns if c.name != "id" and not c.name.endswith("_id")
    }
