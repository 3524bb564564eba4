"""The cells of `frontier parity --suite batch`: rows that join a running batch, against mlx-lm's BatchGenerator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oracles.architectures import vocabulary
from oracles.client import Worker
from oracles.contract import BatchProbe, StackConfig
from oracles.matrix import random_ids
from oracles.parity import Cell
from oracles.recipe import Form, find_recipe, recipes

CHUNK = 7
LIMITS = (8, 5, 10, 3, 7, 9, 4, 6)
# (prompt lengths, turns of joining): a pair, equal lengths, a staggered queue, rows of one token.
COMPOSITIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "equal": ((12, 12, 12), (0, 0, 0)),
    "ragged": ((5, 23, 12, 9), (0, 0, 0, 0)),
    "staggered": ((9, 23, 1, 16, 5, 12, 3, 8), (0, 0, 3, 4, 6, 6, 9, 12)),
}
QUICK = ("qwen3", "gemma3_text", "qwen3_moe", "qwen3_next")
REFUSED = ("bitnet", "muse_spark", "olmo")


def batch_cells(*, quick: bool) -> list[Cell]:
    """Every module at every composition. Where mlx-lm's batch gives a row other bits than its own plain decoding (a
    ring's order of keys, a form that depends on the length of a call, padding in a state), the plain ones judge."""
    names = QUICK if quick else [name for name in recipes() if "-" not in name and name not in REFUSED]
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as builder:
        folders = {name: builder.make(find_recipe(name), Form()) for name in names}
    return [_cell(name, folder, composition) for name, folder in folders.items() for composition in COMPOSITIONS]


def _cell(name: str, folder: Path, composition: str) -> Cell:
    lengths, joins = COMPOSITIONS[composition]
    ids = random_ids(vocabulary(find_recipe(name).config), sum(lengths))
    rows = tuple(split(ids, lengths))
    limits = LIMITS[: len(rows)]
    return Cell(
        name=f"{name} {composition}",
        dtype="float32",
        model=str(folder),
        chunk=CHUNK,
        probe=BatchProbe(rows=rows, joins=joins, limits=limits),
        steps=max(limits),
        compile=False,
    )


def split(ids: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Token ids as consecutive prompts of these lengths."""
    rows, start = [], 0
    for length in lengths:
        rows.append(tuple(ids[start : start + length]))
        start += length
    return rows
