"""The files that the end of an experiment changes: its declaration, the table of levers, the log. All written whole."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import Lever, read_lever_table, read_levers, read_removals
from lab.config import BadConfig
from lab.edits import beside

ENTRY = re.compile(r"^## (\d{4}-\d\d-\d\d) ([\w-]+): (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One heading of the log: the day, the experiment, and "promoted" or "deleted"."""

    day: str
    name: str
    what: str


@dataclass(frozen=True)
class Tree:
    """A source tree by its root."""

    root: Path

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def table(self) -> Path:
        return self.root / "engine" / "levers.json"

    @property
    def log(self) -> Path:
        return self.root / "reports" / "log.md"

    @classmethod
    def here(cls) -> Tree:
        """The tree of the current folder. Raises `BadConfig` where it is none: an installed package is never edited."""
        tree = cls(Path.cwd())
        for needed in (tree.experiments, tree.table):
            if not needed.exists():
                raise BadConfig(f"no {needed.relative_to(tree.root)} in {tree.root}; run this in the source tree")
        return tree

    def experiment(self, name: str) -> Path:
        return self.experiments / f"{name}.yaml"

    def levers(self) -> dict[str, Lever]:
        return read_levers(self.table)

    def overdue(self, today: str) -> list[str]:
        """What should have been removed before this day and is still there, in words."""
        levers, found = self.levers(), []
        for removal in read_removals(self.table):
            left = [file for file in removal.files if (self.root / file).exists()]
            known = removal.lever in levers and removal.variant in levers[removal.lever].variants
            if removal.by < today and (left or known):
                what = f"{removal.lever}={removal.variant} lost in {removal.experiment}"
                where = ", ".join(left) or "engine/levers.json"
                found.append(f"{what} and was to be removed by {removal.by}; still there: {where}")
        return found

    def entries(self) -> list[Entry]:
        """The headings of the log, oldest first."""
        text = self.log.read_text(encoding="utf-8") if self.log.is_file() else ""
        return [Entry(*found.groups()) for found in ENTRY.finditer(text)]

    def log_with(self, day: str, name: str, what: str, lines: Sequence[str]) -> str:
        """The log with an entry at its end."""
        text = self.log.read_text(encoding="utf-8") if self.log.is_file() else "# Experiments that ended\n"
        body = "\n".join((f"## {day} {name}: {what}", "", *lines))
        return f"{text.rstrip()}\n\n{body}\n"

    def read_table(self) -> dict[str, Any]:
        """The table of levers as it is stored, to be edited."""
        return read_lever_table(self.table)


def table_text(table: Mapping[str, Any]) -> str:
    """The text of an edited table. Raises what `read_levers` raises where it holds something that may not be."""
    text = json.dumps(table, indent=1) + "\n"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "levers.json"
        path.write_text(text, encoding="utf-8")
        read_levers(path)
    return text


def set_default(
    table: dict[str, Any], lever: str, machine_key: str, value: str | int, removal: Mapping[str, Any] | None
) -> None:
    """Make `value` the default of `lever` on one machine key; `removal` is noted with it."""
    row = table["levers"][lever]
    if value == row["default"]:
        row["machines"].pop(machine_key, None)
    else:
        row["machines"][machine_key] = value
    if removal is not None:
        table["removals"].append(dict(removal))


def unregister(table: dict[str, Any], lever: str, variant: str, removal: Mapping[str, Any]) -> None:
    """Take a variant out of the table: from then on it is refused. Its files are noted as to be removed."""
    del table["levers"][lever]["variants"][variant]
    table["removals"].append(dict(removal))


def removal_of(lever: Lever, variant: str, by: str, experiment: str) -> dict[str, Any]:
    """A row of the table's removals."""
    return {
        "lever": lever.name,
        "variant": variant,
        "files": list(asdict(lever.variants[variant])["files"]),
        "by": by,
        "experiment": experiment,
    }


def write_json(path: Path, document: object) -> None:
    """A document as JSON, whole or not at all."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside(path).write_text(text, encoding="utf-8")
    os.replace(beside(path), path)
