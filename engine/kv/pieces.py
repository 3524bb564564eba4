"""A row's caches cut at the ends of forwards: what each forward added, kept by itself, and caches made of these again.

Where every token is kept, a piece holds the tokens since the piece before it, so that prompts which begin alike share
what they have in common. A ring, a chunk of attention, a state, and keys that were converted since, are kept whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import LayerCache, Saved
from engine.kv.buffered import BufferedKV
from engine.kv.dense import DenseKV
from engine.kv.plan import KVPlan
from engine.kv.project import counters_after


@dataclass(frozen=True)
class Piece:
    """What is kept of a cache behind a forward. start: the token that its arrays begin with; they lack those before."""

    saved: Saved
    start: int


def cut(cache: LayerCache, before: Piece | None) -> Piece:
    """What to keep of `cache` behind `before`, its piece of the forward before; None for the first. The arrays are
    copies, without slack where every token is kept, and not evaluated yet."""
    marks, arrays = cache.held()
    start = 0
    if isinstance(cache, DenseKV):
        if before is not None and before.saved.kind == cache.kind:
            (start,) = before.saved.marks
        arrays = tuple(None if a is None else a[:, :, start : cache.offset] for a in arrays)
    copies = tuple(None if a is None else mx.contiguous(a) for a in arrays)
    return Piece(Saved(cache.kind, marks, copies), start)


def rebuilt(plan: KVPlan, pieces: Sequence[Sequence[Piece]], lengths: Sequence[int]) -> list[LayerCache]:
    """The caches of a row after forwards of these lengths, of what was kept behind each, by cache; slack as such a row
    has it. Raises `InvalidValue` for pieces that are not of such a row."""
    columns = zip(plan.fresh(), zip(*pieces, strict=True), strict=True)
    return [_rebuilt(plan, i, cache, column, lengths) for i, (cache, column) in enumerate(columns)]


def _rebuilt(
    plan: KVPlan, index: int, cache: LayerCache, pieces: Sequence[Piece], lengths: Sequence[int]
) -> LayerCache:
    last = pieces[-1].saved
    marks, space = counters_after(cache, lengths) if isinstance(cache, BufferedKV) else ((sum(lengths),), 0)
    cache = plan.empty(index, last.kind, cache)
    begun = any(a is not None for a in last.arrays)  # a layer may have a cache and no attention
    if begun and last.marks != marks:
        raise InvalidValue(f"cache {index}", last.marks, f"{marks}, behind forwards of {tuple(lengths)} tokens")
    if begun and isinstance(cache, DenseKV):
        last = Saved(last.kind, last.marks, _joined(pieces, space))
    cache.restore(last)
    cache.check()
    return cache


def _joined(pieces: Sequence[Piece], space: int) -> tuple[mx.array, ...]:
    """The tokens of the pieces that belong together, with room for `space` in all."""
    first = max((i for i, piece in enumerate(pieces) if not piece.start), default=0)
    end, columns = 0, list[tuple[mx.array, ...]]()
    for piece in pieces[first:]:
        arrays = tuple(a for a in piece.saved.arrays if a is not None)
        tokens = {a.shape[2] for a in arrays}
        if piece.start != end or tokens != {piece.saved.marks[0] - end}:
            raise InvalidValue("piece", (piece.start, *sorted(tokens)), f"{piece.saved.marks[0] - end} behind {end}")
        end = piece.saved.marks[0]
        columns.append(arrays)
    slack = tuple(mx.zeros((*a.shape[:2], space - end, *a.shape[3:]), a.dtype) for a in columns[-1])
    return tuple(mx.concatenate(list(column), axis=2) for column in zip(*columns, slack, strict=True))
