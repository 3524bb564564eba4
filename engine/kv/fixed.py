"""Caches of rows while a step of one token each is traced: arrays of a fixed size, and places in them that are arrays
too, so that one trace serves every step until a buffer has to grow.

What lies behind a row's last token is masked. Masked keys add zeros to a sum, which keeps its bits where sums run in
the order of keys; values behind the last token must be finite, as those of a cache are.

Letters: B rows, K key/value heads, C tokens that a buffer has room for, D head dimension, G places that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.kv.base import KVView, LayerCache
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import capacity, part
from engine.kv.masks import Masks
from engine.kv.rows import Caches, RowsView
from engine.kv.scheme import Scheme
from engine.kv.storage import Parts

SHORTEST = 32
Held = tuple[mx.array | None, ...]


class Places:
    """Where the next token of each row goes. places int32 [B, G, 3]: its index in a buffer, the first key that it sees
    and the one behind the last; offset int32 [B]: tokens before it; reach: keys behind which none is seen."""

    def __init__(self, places: mx.array, offset: mx.array, reach: int) -> None:
        self.places, self.offset, self.reach = places, offset, reach
        self._seen: dict[tuple[int, int, int], mx.array] = {}

    def index(self, row: int, group: int) -> mx.array:
        """int32 [1]."""
        return self.places[row, group, :1]

    def seen(self, row: int, group: int, room: int) -> mx.array:
        """Boolean [1, C]: the keys that the row's token sees."""
        key = row, group, room
        if key not in self._seen:
            keys = mx.arange(room)
            first, end = (self.places[row, group, i : i + 1] for i in (1, 2))
            self._seen[key] = ((keys >= first) & (keys < end))[None]
        return self._seen[key]


class FixedKV:
    """One layer's keys and values of B rows, at the places of `group`."""

    def __init__(self, schemes: Sequence[Scheme], held: Sequence[Held], places: Places, group: int) -> None:
        self._schemes, self._places, self._group = schemes, places, group
        self._held: list[Parts] = [tuple(x for x in row if x is not None) for row in held]
        self.offset = places.offset

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Write row b of `keys`, `values` [B, K, 1, D] into row b's buffers."""
        views = [self._append(b, keys[b : b + 1], values[b : b + 1]) for b in range(len(self._held))]
        return views[0] if len(views) == 1 else RowsView(views, self.offset)

    def _append(self, row: int, keys: mx.array, values: mx.array) -> KVView:
        scheme, at = self._schemes[row], self._places.index(row, self._group)
        new = (*scheme.keys.pack(keys), *scheme.values.pack(values))
        buffers = tuple(
            mx.slice_update(buffer, fresh, at, axes=(2,)) for buffer, fresh in zip(self._held[row], new, strict=True)
        )
        self._held[row] = buffers
        reach = min(self._places.reach, capacity(buffers))
        near = buffers if reach == capacity(buffers) else part(buffers, 0, reach)
        seen, count = self._places.seen(row, self._group, reach), scheme.keys.count

        def visible(length: int, masks: Masks) -> mx.array:
            return seen

        offset = self.offset[row : row + 1]
        return scheme.view(near[:count], near[count:], offset, visible, keys.dtype)

    def held(self) -> list[Held]:
        """What each row holds now."""
        return list(self._held)


class FixedState:
    """One layer's recurrent state of B rows."""

    def __init__(self, held: Sequence[Held], places: Places) -> None:
        self.offset, self._rows = places.offset, len(held)
        self.slots: Held = held[0] if len(held) == 1 else tuple(map(_side_by_side, zip(*held, strict=True)))

    def append(self, length: int, *slots: mx.array | None) -> None:
        """Put the state after `length` more tokens of each row in place of the present one."""
        self.slots = slots

    def held(self) -> list[Held]:
        """What each row holds now."""
        if self._rows == 1:
            return [self.slots]
        return [tuple(None if slot is None else slot[b : b + 1] for slot in self.slots) for b in range(self._rows)]


Fixed = FixedKV | FixedState


@dataclass(frozen=True)
class Geometry:
    """What a trace of one step depends on: for each layer and row, its scheme (None for a state) and what it holds,
    None where it holds nothing, else shape and dtype; and how far it attends."""

    layers: tuple[tuple[tuple[Scheme | None, tuple[object, ...]], ...], ...]
    reach: int

    @classmethod
    def of(cls, rows: Sequence[Caches], keys: int) -> Geometry:
        """Of rows that see at most `keys` keys: they attend up to a quarter more, so that lengths share a trace."""
        layers = tuple(tuple(_shape(cache) for cache in layer) for layer in zip(*rows, strict=True))
        step = max(SHORTEST, (1 << keys.bit_length()) // 8)
        return cls(layers, -(-keys // step) * step)


def _shape(cache: LayerCache) -> tuple[Scheme | None, tuple[object, ...]]:
    scheme = cache.scheme if isinstance(cache, BufferedKV) else None
    return scheme, tuple(None if a is None else (a.shape, a.dtype) for a in cache.held()[1])


def _side_by_side(column: Sequence[mx.array | None]) -> mx.array | None:
    present = [slot for slot in column if slot is not None]
    assert len(present) in (0, len(column)), "rows that share a step have all begun"
    return mx.concatenate(present) if present else None
