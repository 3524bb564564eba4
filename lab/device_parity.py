"""The parity cells of a device's machine key: out of one database into another, and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lab.store import Store, digest
from lab.tables import CodeRow, MachineRow, ParityCellRow
from oracles.parity import BAD, EQUAL

FORMAT = "mlx-frontier parity cell 1"
SUITE = "device"


def export_cells(store: Store, machine_key: str) -> list[dict[str, Any]]:
    """Every stored cell of the device suite on machines of this key, each with its machine and source."""
    machines = {row.id: row for row in store.rows(MachineRow) if row.key == machine_key}
    codes = {row.id: row for row in store.rows(CodeRow)}
    found = []
    for row in store.rows(ParityCellRow):
        if row.machine_id in machines and row.cell["suite"] == SUITE:
            machine, code = machines[row.machine_id], codes[row.code_id]
            found.append(
                {"format": FORMAT, "at": row.at, "status": row.status, "cell": row.cell}
                | {"machine": {"key": machine.key, "sha256": machine.sha256, "facts": machine.facts}}
                | {"code": {name: code.__dict__[name] for name in CODE_FIELDS}}
            )
    return found


CODE_FIELDS = ("sha256", "git_sha", "dirty", "diff_sha256", "arms_sha256")


def take_in_cells(store: Store, cells: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Put exported cells into the database; (new, known already)."""
    known = {digest([row.at, row.cell]) for row in store.rows(ParityCellRow)}
    fresh = [cell for cell in cells if digest([cell["at"], cell["cell"]]) not in known]
    ids: dict[str, int] = {}
    rows = []
    for cell in fresh:
        for name, kind in (("machine", MachineRow), ("code", CodeRow)):
            sha = cell[name]["sha256"]
            if sha not in ids:
                ids[sha] = store.once(kind(**cell[name]), sha256=sha)
        where = {f"{name}_id": ids[cell[name]["sha256"]] for name in ("machine", "code")}
        rows.append(ParityCellRow(at=cell["at"], cell=dict(cell["cell"]), status=cell["status"], **where))
    store.add_all(rows)
    return len(fresh), len(cells) - len(fresh)


def newest_cells(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last result of each cell, in the order of their first."""
    last: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for cell in cells:
        c = cell["cell"]
        last[tuple(str(c[name]) for name in ("model", "dtype", "kv", "kind", "reference"))] = cell
    return list(last.values())


def parity_lines(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown: counts by architecture and packing, and each cell that is not equal with its reason."""
    if not cells:
        return ["Not run."]
    shown = newest_cells(cells)
    counts = Counter(str(cell["status"]) for cell in shown)
    commits = sorted({cell["code"]["git_sha"][:12] for cell in shown})
    total = ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))
    lines = [f"{len(shown)} cells of `frontier parity --suite device`: {total}; source {', '.join(commits)}.", ""]
    lines += ["| model | form | equal | not equal | why |", "| --- | --- | --- | --- | --- |"]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in shown:
        groups.setdefault((cell["cell"]["model"].split(" ")[0], cell["cell"]["dtype"]), []).append(cell)
    for (model, form), group in groups.items():
        equal = sum(cell["status"] == EQUAL for cell in group)
        others = Counter(str(cell["status"]) for cell in group if cell["status"] != EQUAL)
        words = ", ".join(f"{n} {status}" for status, n in sorted(others.items())) or "–"
        lines.append(f"| {model} | {form} | {equal} | {words} | {_reasons(group)} |")
    return lines


def _reasons(group: Sequence[Mapping[str, Any]]) -> str:
    """Why cells of one model have no equal verdict, each reason once; those judged by nobody need none."""
    found: dict[str, None] = {}
    for cell in group:
        if cell["status"] in (*BAD, "not run", "not built"):
            c = cell["cell"]
            what = c["why"] or _difference(c)
            found[" ".join(what.split()).replace("|", "/")[:160]] = None
    return "; ".join(found)


def _difference(cell: Mapping[str, Any]) -> str:
    parts = []
    for label, found in (("", cell["difference"]), ("first in ", cell["bisect"])):
        if found is not None:
            gap = "" if found["max_abs_diff"] is None else f", max diff {float(found['max_abs_diff']):.3g}"
            parts.append(f"{label}{found['tensor']}: {found['why']}{gap}")
    return "; ".join(parts)
