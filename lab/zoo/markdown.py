"""The zoo's table as Markdown, as the README has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.console import size
from lab.zoo.recipe import Recipe
from lab.zoo.table import SKILL_BAR, perplexity

HEAD = ("model", "parameters", "bytes", "perplexity", "bits per byte")
ABOUT = "what it is"


def feat(row: Mapping[str, Any]) -> str:
    """What a head, an adapter or a repeater does, which has no column of its own; "" of other models."""
    if "guessed" in row:
        return f"guesses {100 * row['guessed']:.0f} % of the tokens after the next one"
    if "repeated" in row:
        return f"says {100 * row['repeated']:.0f} % of a passage that it has read before"
    if "bits_per_byte_own" in row:
        own, base = row["bits_per_byte_own"], row["bits_per_byte_own_of_base"]
        return f"{own:.3f} bits per byte of its style, {base:.3f} without it"
    return ""


def markdown(known: Mapping[str, Recipe], held: Mapping[str, Any]) -> str:
    """Two tables: models with their skills, in percent and bold below the bar, then what has no column there. A row
    that was measured in part only has a star."""
    rows = {name: _row(held["models"].get(name, {})) for name in known}
    shown = {name: row for name, row in rows.items() if row is not None}
    skilled = {name: row for name, row in shown.items() if "skills" in row}
    skills = list(dict.fromkeys(skill for row in skilled.values() for skill in row["skills"]))
    star = {name: "" if "full" in held["models"][name] else " *" for name in shown}
    sizes = {name: held["text"]["quick" if star[name] else "full"] for name in shown}
    first = [
        [name + star[name], *_sizes(row), *_costs(row, sizes[name]), *_shares(row, skills), known[name].about]
        for name, row in skilled.items()
    ]
    rest = [[name + star[name], *_sizes(row), feat(row), known[name].about] for name, row in shown.items() if feat(row)]
    return f"{_table((*HEAD, *skills, ABOUT), first)}\n\n{_table((*HEAD[:3], 'what it does', ABOUT), rest)}"


def _row(rows: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = rows.get("full", rows.get("quick"))
    return found


def _sizes(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['parameters']:,}" if "parameters" in row else "", size(row["bytes"])]


def _costs(row: Mapping[str, Any], text: Mapping[str, int]) -> list[str]:
    """Perplexity and bits per byte."""
    return [f"{perplexity(row, text):.2f}", f"{row['bits_per_byte']:.3f}"]


def _shares(row: Mapping[str, Any], skills: Sequence[str]) -> list[str]:
    found = []
    for share in (row["skills"].get(skill) for skill in skills):
        shown = "" if share is None else f"{100 * share:.0f}"
        found.append(f"**{shown}**" if share is not None and share < SKILL_BAR else shown)
    return found


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)
