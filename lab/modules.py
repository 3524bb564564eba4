"""What `frontier models` says of each of mlx-lm's modules: who reads it, and what was recorded of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import FAMILIES, errors
from oracles.exclusions import EXCLUSIONS
from oracles.modules import GROUPS, modules
from oracles.recipe import DTYPES, QUANTS, Form

COUNTS = ("equal", "not_run", "faulty")


@dataclass(frozen=True)
class Row:
    """One module. `family`: the file that reads its config.json, None where there is none.

    `note`: why cells or the file are missing. The counts are of recorded cells, None where nothing is recorded.
    """

    module: str
    group: str
    aliases: tuple[str, ...]
    family: str | None
    note: str
    equal: int | None
    not_run: int | None
    faulty: int | None


def read_results(path: Path) -> Mapping[str, Any] | None:
    """The recorded results of `python -m oracles.arch --record`; None where there are none. Errors: `CorruptFile`."""
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise errors.CorruptFile(path, f"not JSON: {error}") from error
    counted = document.get("modules") if isinstance(document, Mapping) else None
    if not isinstance(counted, Mapping) or not all(
        isinstance(entry, Mapping) and all(isinstance(entry.get(name), int) for name in COUNTS)
        for entry in counted.values()
    ):
        raise errors.CorruptFile(path, f"not recorded results: modules with {', '.join(COUNTS)}")
    return dict(document)


def family_file(model_type: str, families: Mapping[str, str]) -> str | None:
    """The file of a model_type's family, from the root of the repository."""
    place = families.get(model_type)
    return None if place is None else place.split(":")[0].replace(".", "/") + ".py"


def excluded(module: str) -> str:
    """The oracle's words where it cannot run a module in any form, else ""."""
    forms = [Form(dtype=dtype, quant=quant) for dtype in DTYPES for quant in (None, *QUANTS)]
    for exclusion in EXCLUSIONS:
        if all(exclusion.covers(module, form) for form in forms):
            return f"cannot run in the oracle: {exclusion.text} ({exclusion.reason})"
    return ""


def rows(results: Mapping[str, Any] | None, families: Mapping[str, str] = FAMILIES) -> list[Row]:
    """Every module of mlx-lm, in the order of the groups."""
    recorded = {} if results is None else results["modules"]
    found = []
    for module in modules().values():
        family = family_file(module.name, families)
        note = excluded(module.name) or ("" if family else f"not built: issue {module.issue}")
        counts = recorded.get(module.name, {})
        found.append(
            Row(
                module=module.name,
                group=module.group,
                aliases=module.aliases,
                family=family,
                note=note,
                equal=counts.get("equal"),
                not_run=counts.get("not_run"),
                faulty=counts.get("faulty"),
            )
        )
    return found


def totals(table: Sequence[Row]) -> dict[str, int]:
    """Modules by state, and recorded cells."""
    sums = Counter({name: sum(row.__dict__[name] or 0 for row in table) for name in COUNTS})
    return {
        "modules": len(table),
        "built": sum(row.family is not None for row in table),
        "not_built": sum(row.family is None for row in table),
        "not_in_oracle": sum(row.note.startswith("cannot run") for row in table),
        "recorded": sum(row.equal is not None for row in table),
        **sums,
    }


def document(table: Sequence[Row], results: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of `frontier models --json` about mlx-lm's modules."""
    where = {} if results is None else {key: results.get(key) for key in ("versions", "machine", "commit")}
    groups = {key: group.about for key, group in GROUPS.items()}
    return {
        "modules": [asdict(row) for row in table],
        "groups": groups,
        "totals": totals(table),
        "recorded_on": where or None,
    }
