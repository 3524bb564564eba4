"""The one table of levers: what can be chosen, its default, by machine where a verdict says so, and whose it is.

`levers.json` beside this file holds it, since `frontier lab promote` and `delete` edit it. A value belongs to the
variant of its name, and to each whose pattern is found in it; the first of them is the one that it is called by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import InvalidValue, UnknownField

LEVER_TABLE = Path(__file__).resolve().parent / "levers.json"
KINDS = ("oracle-owned", "ours")
PLACES = ("engine", "request", "process")
Value = str | int


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One form of a lever. kind: "oracle-owned" for what mlx-lm or optiq ships, whose code is never removed; "ours".

    files: code that only this variant needs, as paths from the root of the source tree.
    """

    name: str
    kind: str
    pattern: str = ""
    files: tuple[str, ...] = ()

    def holds(self, value: Value) -> bool:
        """Whether `value` is of this variant."""
        return re.search(self.pattern, str(value)) is not None if self.pattern else value == self.name


@dataclass(frozen=True, kw_only=True)
class Lever:
    """where: "engine" for a field of `EngineConfig`, "request" for one of `SamplingParams`, "process" for what is fixed
    when a process starts.

    machines: beginnings of machine keys and their defaults; the longest that fits wins.
    """

    name: str
    what: str
    where: str
    default: Value
    variants: Mapping[str, Variant]
    machines: Mapping[str, Value] = field(default_factory=dict)

    def variant(self, value: Value) -> Variant:
        """The variant that a value belongs to. Raises `InvalidValue` with the registered ones."""
        for variant in self.variants.values():
            if variant.holds(value):
                return variant
        raise InvalidValue(self.name, value, tuple(self.variants))

    def variants_of(self, value: Value) -> tuple[Variant, ...]:
        """Every variant that a value belongs to: a packed cache that is written packed is of two. Raises
        `InvalidValue`."""
        self.variant(value)
        return tuple(variant for variant in self.variants.values() if variant.holds(value))

    def default_on(self, machine_key: str) -> Value:
        """The default on one machine."""
        fitting = [key for key in self.machines if machine_key.startswith(key)]
        return self.machines[max(fitting, key=len)] if fitting else self.default


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Code that lost: `files` must be gone from the tree, and `variant` from the table, by the day `by` (ISO)."""

    lever: str
    variant: str
    files: tuple[str, ...]
    by: str
    experiment: str


def read_levers(path: Path = LEVER_TABLE) -> dict[str, Lever]:
    """Lever name -> lever, checked: every default is of a registered variant."""
    found: dict[str, Lever] = {}
    for name, row in read_lever_table(path)["levers"].items():
        variants = {
            each: Variant(**{"name": each, **fields, "files": tuple(fields.get("files", ()))})
            for each, fields in row["variants"].items()
        }
        lever = Lever(**{**row, "name": name, "variants": variants})
        if lever.where not in PLACES:
            raise InvalidValue(f"{path.name} {name}.where", lever.where, PLACES)
        for variant in variants.values():
            if variant.kind not in KINDS:
                raise InvalidValue(f"{path.name} {name}.{variant.name}.kind", variant.kind, KINDS)
        for value in (lever.default, *lever.machines.values()):
            lever.variant(value)
        found[name] = lever
    return found


def read_removals(path: Path = LEVER_TABLE) -> list[Removal]:
    """What promoted and deleted experiments left to be removed."""
    return [Removal(**{**row, "files": tuple(row["files"])}) for row in read_lever_table(path)["removals"]]


def read_lever_table(path: Path = LEVER_TABLE) -> dict[str, Any]:
    """The table as it is stored: "levers" and "removals"."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


LEVERS = read_levers()


def lever(name: str) -> Lever:
    """One lever by name. Raises `UnknownField` with the known."""
    if name not in LEVERS:
        raise UnknownField("levers", name, LEVERS)
    return LEVERS[name]


def machine_defaults(key: Callable[[], str]) -> dict[str, Value]:
    """The engine's levers whose default on this machine is not the general one. `key` is asked only if any is."""
    special = [each for each in LEVERS.values() if each.where == "engine" and each.machines]
    if not special:
        return {}
    here = key()
    return {each.name: each.default_on(here) for each in special if each.default_on(here) != each.default}
