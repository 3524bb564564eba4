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
from engine.kv.batched import BatchedRing, BatchedState
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import capacity, near, part, stride
from engine.kv.masks import Masks
from engine.kv.padded import PaddedKV
from engine.kv.rows import RowsKV, RowsState, RowsView, Slot
from engine.kv.scheme import NATIVE, Scheme
from engine.kv.storage import Parts

Held = tuple[mx.array | None, ...]
Shape = tuple[tuple[int, ...], mx.Dtype]
Holder = LayerCache | PaddedKV | RowsState


def holders(slot: Slot) -> Sequence[Holder]:
    """What holds a layer's arrays: one thing for all rows, or each row's own cache."""
    assert not isinstance(slot, BatchedRing | BatchedState)  # they run no traced step
    return slot.caches() if isinstance(slot, RowsKV) else [slot]


def places(slot: Slot) -> list[tuple[int, int, int]]:
    """Where the next token of each row goes, see `BufferedKV.place`; [] where there are no keys."""
    if isinstance(slot, PaddedKV):
        return slot.places() if slot.arrays() else []
    caches = [cache for cache in holders(slot) if isinstance(cache, BufferedKV)]
    return [cache.place() for cache in caches if cache.keys is not None]


class Places:
    """Where the next token of each row goes. places int32 [B, G, 3]: its index in a buffer, the first key that it sees
    and the one behind the last; offset int32 [B]: tokens before it; reach: keys behind which none is seen."""

    def __init__(self, places: mx.array, offset: mx.array, reach: int) -> None:
        self.places, self.offset, self.reach = places, offset, reach
        self._seen: dict[tuple[int, int, int], mx.array] = {}

    def index(self, row: int, group: int) -> mx.array:
        """int32 [1]."""
        return self.places[row, group, :1]

    def seen(self, row: int, rows: int, group: int, room: int) -> mx.array:
        """Boolean [rows, 1, 1, C]: the keys that the tokens of so many rows see, from this one on."""
        key = row, group, room
        if key not in self._seen:
            keys = mx.arange(room)[None]
            first, end = (self.places[row : row + rows, group, i : i + 1] for i in (1, 2))
            self._seen[key] = ((keys >= first) & (keys < end))[:, None, None]
        return self._seen[key]


class FixedKV:
    """One layer's keys and values of B rows, at the places of `group`: in one buffer, or in one for each row."""

    def __init__(self, schemes: Sequence[Scheme], held: Sequence[Held], places: Places, group: int) -> None:
        self._schemes, self._places, self._group = schemes, places, group
        self._held: list[Parts] = [tuple(x for x in row if x is not None) for row in held]
        self.offset = places.offset

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Write row b of `keys`, `values` [B, K, 1, D] into row b's buffers."""
        if len(self._held) == 1:
            return self._append(0, keys, values)
        views = [self._append(b, keys[b : b + 1], values[b : b + 1]) for b in range(len(self._held))]
        return RowsView(views, self.offset)

    def _append(self, row: int, keys: mx.array, values: mx.array) -> KVView:
        """Into one holder of keys and values: those of all rows, whose tokens have one place, or of this one."""
        scheme, at = self._schemes[row], self._places.index(row, self._group)
        new = (*scheme.keys.pack(keys), *scheme.values.pack(values))
        buffers = tuple(
            mx.slice_update(buffer, fresh, at, axes=(2,)) for buffer, fresh in zip(self._held[row], new, strict=True)
        )
        self._held[row] = buffers
        reach = min(self._places.reach, capacity(buffers))
        reached = buffers if reach == capacity(buffers) else part(buffers, 0, reach)
        seen, count = self._places.seen(row, keys.shape[0], self._group, reach), scheme.keys.count

        def visible(length: int, masks: Masks) -> mx.array:
            return seen

        offset = self.offset[row : row + keys.shape[0]]
        return scheme.view(reached[:count], reached[count:], offset, visible, keys.dtype)

    def held(self) -> list[Held]:
        """What each holder holds now."""
        return list(self._held)


class FixedState:
    """One layer's recurrent state of B rows."""

    def __init__(self, held: Held, places: Places) -> None:
        self.offset, self.slots = places.offset, held

    def append(self, length: int, *slots: mx.array | None) -> None:
        """Put the state after `length` more tokens of each row in place of the present one."""
        self.slots = slots

    def held(self) -> list[Held]:
        """What is held of all rows now."""
        return [self.slots]


Fixed = FixedKV | FixedState


@dataclass(frozen=True)
class Geometry:
    """What a trace of one step depends on: its rows; for each holder of each layer its scheme (None for a state) and
    what it holds, None where it holds nothing, else shape and dtype; and how far it attends."""

    rows: int
    layers: tuple[tuple[tuple[Scheme | None, tuple[Shape | None, ...]], ...], ...]
    reach: int

    @classmethod
    def of(cls, rows: int, layers: Sequence[Sequence[Holder]], keys: int) -> Geometry:
        """Of rows that see at most `keys` keys: they attend up to a quarter more, so that lengths share a trace."""
        shapes = tuple(tuple(_shape(holder) for holder in layer) for layer in layers)
        return cls(rows, shapes, near(keys))

    def native(self) -> set[tuple[mx.Dtype, range, int]]:
        """Of keys and values in the model's dtype: (dtype, how many keys a row may see, how many it attends)."""
        found = set()
        for layer in self.layers:
            for scheme, held in layer:
                if scheme is NATIVE and held[0] is not None:
                    shape, dtype = held[0]
                    reach = min(self.reach, shape[2])
                    # Each row's own buffers serve the shorter ones too.
                    least = 1 if len(layer) > 1 else max(self.reach - stride(self.reach), 0) + 1
                    found.add((dtype, range(min(least, reach), reach + 1), reach))
        return found


def _shape(holder: Holder) -> tuple[Scheme | None, tuple[Shape | None, ...]]:
    scheme = holder.scheme if isinstance(holder, BufferedKV | PaddedKV) else None
    return scheme, tuple(None if a is None else (a.shape, a.dtype) for a in holder.held()[1])
