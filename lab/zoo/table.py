"""The table of the zoo: what was measured, the bars, and whether a new measurement says the same.

Bars: bits per byte at most `BPB_BAR` of the byte n-gram's; every skill at `SKILL_BAR`; an adapter below its base on
text of its style; the repeater right in `REPEAT_BAR` of what it has read before. What a model does not reach is in the
table as measured, and named in `below`; a model that is better or worse than its row says is not true.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine import errors
from lab.zoo.recipe import FOLDER, Recipe

TABLE = FOLDER / "table.json"
BPB_BAR, SKILL_BAR, REPEAT_BAR = 0.9, 0.9, 0.9
# Of a row, where it has them.
FIGURES = ("parameters", "bits_per_byte", "repeated", "guessed", "bits_per_byte_own")
# What another machine's rounding may change: float32 sums of a few thousand terms in another order move a loss in the
# fifth digit, and one greedy answer whose two best tokens are that close.
BPB_SLACK, SHARE_SLACK_ITEMS = 1e-3, 1


def read_table(path: Path = TABLE) -> dict[str, Any]:
    """The table of a file. Raises `CorruptFile` for one that is not there, and for what is no such table."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else f"not JSON in UTF-8: {error}"
        raise errors.CorruptFile(path, str(words)) from error
    return check_table(path, held)


def check_table(path: Path, held: object) -> dict[str, Any]:
    """A document as the table of `path`; no number is judged. Raises `CorruptFile` for one that is none."""
    table = _object(path, "the document", held)
    text = _object(path, "text", table.get("text", {}))
    for which, value in _object(path, "baseline", table.get("baseline")).items():
        _number(path, f"baseline.{which}", value)
    for name, sizes in _object(path, "models", table.get("models")).items():
        for which, row in _object(path, f"models.{name}", sizes).items():
            check_row(path, f"models.{name}.{which}", _object(path, f"models.{name}.{which}", row))
            for count in ("bytes", "tokens"):
                _number(path, f"text.{which}.{count}", _object(path, f"text.{which}", text.get(which)).get(count))
    return table


def check_row(path: Path, where: str, row: Mapping[str, Any]) -> None:
    """Raise `CorruptFile` unless a row has what every row has, and the rest of what it begins."""
    needs = {"bytes", *(name for name in FIGURES if name in row)}
    needs |= {"bits_per_byte"} if "skills" in row else set()
    needs |= {"bits_per_byte_own_of_base"} if "bits_per_byte_own" in row else set()
    for name in sorted(needs):
        _number(path, f"{where}.{name}", row.get(name))
    for skill, share in _object(path, f"{where}.skills", row.get("skills", {})).items():
        _number(path, f"{where}.skills.{skill}", share)
    below = row.get("below")
    if not isinstance(below, list) or not all(isinstance(each, str) for each in below):
        raise errors.CorruptFile(path, f"no table of the zoo: {where}.below is {below!r}, no list of names")


def _object(path: Path, where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise errors.CorruptFile(path, f"no table of the zoo: {where} is {value!r:.40}, no object")
    return value


def _number(path: Path, where: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise errors.CorruptFile(path, f"no table of the zoo: {where} is {value!r:.40}, no number")


def write_table(table: Mapping[str, Any], path: Path = TABLE) -> None:
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def record(
    name: str, which: str, row: Mapping[str, Any], baseline: float, text: Mapping[str, int], path: Path = TABLE
) -> None:
    """One row, written at once: a run that ends early keeps what it has measured."""
    held = read_table(path)
    held["baseline"][which] = baseline
    held.setdefault("text", {})[which] = dict(text)
    held["models"].setdefault(name, {})[which] = dict(row)
    write_table(held, path)


def perplexity(row: Mapping[str, Any], text: Mapping[str, int]) -> float | None:
    """Of a token of the held-out text, from the bits per byte; None of a head, which has none."""
    bits = row.get("bits_per_byte")
    return None if bits is None else math.exp(bits * math.log(2) * text["bytes"] / text["tokens"])


def below_bar(recipe: Recipe, row: Mapping[str, Any], baseline: float) -> list[str]:
    """The bars that a row does not reach, by name."""
    found = []
    if recipe.kind == "adapter":
        if row["bits_per_byte_own"] >= row["bits_per_byte_own_of_base"]:
            found.append("bits_per_byte_own")
    elif "bits_per_byte" in row and row["bits_per_byte"] > BPB_BAR * baseline:
        found.append("bits_per_byte")
    if row.get("repeated", 1.0) < REPEAT_BAR:
        found.append("repeated")
    found += [skill for skill, share in row.get("skills", {}).items() if share < SKILL_BAR]
    return sorted(found)


def untrue(stored: Mapping[str, Any] | None, found: Mapping[str, Any], items: int) -> Iterator[str]:
    """Every claim of a stored row that a measurement does not bear out, as a line."""
    if stored is None:
        yield "no row in the table"
        return
    for name in sorted(stored.keys() | found.keys()):
        said, is_now = stored.get(name), found.get(name)
        if isinstance(said, dict) and isinstance(is_now, dict):
            for skill in sorted(said.keys() | is_now.keys()):
                if not same(said.get(skill), is_now.get(skill), SHARE_SLACK_ITEMS / items):
                    yield f"{name} {skill}: the table says {said.get(skill)}, measured {is_now.get(skill)}"
        elif not same(said, is_now, BPB_SLACK):
            yield f"{name}: the table says {said}, measured {is_now}"


def same(said: object, is_now: object, slack: float) -> bool:
    """Equal, numbers to within `slack`."""
    if isinstance(said, float) and isinstance(is_now, float):
        return abs(said - is_now) <= slack + 1e-9
    return said == is_now
