"""Rows side by side in one forward. Each row keeps its own caches, unpadded, for life: nothing is copied when a row
joins or leaves, no mask hides padding, and each row's attention is the one that it would run alone. Or rows lie in one
buffer (engine.kv.padded): one attention for all of them, and copies when one joins or leaves. engine.kv.batched has
them as mlx-lm's batch has.

Letters: B rows, H query heads, K key/value heads, L query length, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView, LayerCache, LayerKV, Offset, Offsets
from engine.kv.batched import BatchedRing, BatchedState
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.padded import PaddedKV
from engine.kv.recurrent import StateKV

Caches = list[LayerCache]


class RowsKV:
    """One layer's keys and values of B rows. It looks its caches up at each append: a row's may be converted."""

    def __init__(self, rows: Sequence[Caches], layer: int, offsets: Offsets) -> None:
        self._rows, self._layer, self._offsets = rows, layer, offsets

    def caches(self) -> list[LayerKV]:
        """Each row's own, as they are now."""
        caches = [row[self._layer] for row in self._rows]
        assert all(isinstance(cache, LayerKV) for cache in caches)
        return caches  # type: ignore[return-value]

    @property
    def offset(self) -> Offset:
        """Tokens in each row."""
        return self._offsets(tuple(cache.offset for cache in self.caches()))

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Store row b of `keys`, `values` [B, K, L, D] in row b's cache."""
        caches = self.caches()
        offset = self._offsets(tuple(cache.offset for cache in caches))
        return RowsView([c.append(keys[b : b + 1], values[b : b + 1]) for b, c in enumerate(caches)], offset)


class RowsView(KVView):
    """What each of B rows attends."""

    def __init__(self, views: Sequence[KVView], offset: Offset) -> None:
        self._views, self.offset = views, offset

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
        bias: mx.array | None = None,
        select: mx.array | None = None,
    ) -> mx.array:
        if bias is not None or select is not None:
            raise InvalidValue("bias/select", "given", "absent: rows of unequal length have no common keys")
        out = [
            view.attend(queries[b : b + 1], scale, masks, softcap=softcap, sinks=sinks)
            for b, view in enumerate(self._views)
        ]
        return mx.concatenate(out, axis=0)

    def dense(self) -> tuple[mx.array, mx.array]:
        raise InvalidValue("rows", len(self._views), "1: keys of unequal length do not lie in one array")

    def over(self, keys: mx.array, values: mx.array) -> KVView:
        raise InvalidValue("rows", len(self._views), "1: keys of unequal length do not lie in one array")


class RowsState:
    """One layer's recurrent state of B rows, merged until `settle` gives each row its part back."""

    def __init__(self, rows: Sequence[Caches], layer: int, offsets: Offsets) -> None:
        self._offsets = offsets
        states = [row[layer] for row in rows]
        assert all(isinstance(state, StateKV) for state in states)
        self._states: list[StateKV] = states  # type: ignore[assignment]
        columns = zip(*(state.slots for state in self._states), strict=True)
        self.slots = tuple(_stacked(column) for column in columns)
        for b, state in enumerate(self._states):
            state.lend(partial(self._part, b))

    @property
    def offset(self) -> Offset:
        """Tokens in each row."""
        return self._offsets(tuple(state.offset for state in self._states))

    @property
    def nbytes(self) -> int:
        """Bytes of all rows: what merging them copied."""
        return sum(slot.nbytes for slot in self.slots if slot is not None)

    def append(self, length: int, *slots: mx.array | None) -> None:
        """Put the state after `length` more tokens of each row in place of the present one."""
        self.slots = slots
        for state in self._states:
            state.offset += length

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        """As `LayerCache.held`, of all rows."""
        return tuple(state.offset for state in self._states), self.slots

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        """As `LayerCache.hold`, of all rows."""
        self.slots = arrays
        for state, offset in zip(self._states, marks, strict=True):
            state.offset = offset

    def after_one(self) -> tuple[int, ...]:
        """Its counters once every row has one more token."""
        return tuple(state.offset + 1 for state in self._states)

    def settle(self) -> None:
        """Write each row's part into its own cache."""
        for b, state in enumerate(self._states):
            state.slots = self._part(b)

    def _part(self, b: int) -> tuple[mx.array | None, ...]:
        return tuple(None if slot is None else slot[b : b + 1] for slot in self.slots)


Slot = LayerCache | RowsKV | RowsState | PaddedKV | BatchedRing | BatchedState


def merged(rows: Sequence[Caches]) -> list[Slot]:
    """The caches of B rows, layer by layer, as one forward of all takes them: each keeps its own. Where there are
    states all rows must have begun."""
    offsets = Offsets()
    return [
        RowsState(rows, layer, offsets) if isinstance(cache, StateKV) else RowsKV(rows, layer, offsets)
        for layer, cache in enumerate(rows[0])
    ]


def padded(rows: Sequence[Caches], layers: Sequence[bool], *, lengths: tuple[int, ...] = ()) -> list[Slot]:
    """The same with the rows of these layers in one buffer: see `PaddedKV`."""
    slots, offsets = merged(rows), Offsets()
    for layer in (layer for layer, one_buffer in enumerate(layers) if one_buffer):
        caches = [row[layer] for row in rows]
        assert all(isinstance(cache, DenseKV) for cache in caches)
        slots[layer] = PaddedKV(caches, offsets, lengths=lengths)  # type: ignore[arg-type]
    return slots


def align(slots: Sequence[Slot]) -> None:
    """Make padded rows of unequal additions end side by side."""
    for slot in slots:
        if isinstance(slot, PaddedKV):
            slot.align()


def settle(slots: Sequence[Slot]) -> None:
    """Bring each row's own caches up to date."""
    for slot in slots:
        if isinstance(slot, RowsState | PaddedKV):
            slot.settle()


def copied(slots: Sequence[Slot]) -> int:
    """Bytes that putting rows together copied."""
    return sum(slot.nbytes for slot in slots if isinstance(slot, RowsState | PaddedKV))


def _stacked(column: Sequence[mx.array | None]) -> mx.array | None:
    present = [slot for slot in column if slot is not None]
    if not present:
        return None
    assert len(present) == len(column), "a row that has not begun cannot lie beside one that has"
    return mx.concatenate(present, axis=0)
