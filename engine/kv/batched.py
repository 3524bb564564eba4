"""Rows side by side as mlx-lm's BatchGenerator keeps them (0.32.2, models/cache.py: BatchKVCache, BatchRotatingKVCache,
ArraysCache): what is padded, how rings turn, and which masks there are, also where one would hide nothing. On a GPU,
and with OpenBLAS, bits depend on all of it.

A prompt's chunks are padded behind, and `finalize` puts the padding before them. Rows that leave a ring leave their
padding to the others; those that join lie against its end.

Letters: B rows, K key/value heads, L query length, C tokens in an array, D head dimension.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self

import mlx.core as mx

from engine.kv.base import KVView, LayerCache, Offset, Offsets
from engine.kv.buffers import STEP
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.padded import PaddedKV
from engine.kv.recurrent import StateKV
from engine.kv.rotating import RotatingKV
from engine.kv.storage import Parts
from engine.kv.views import DenseView

Caches = list[LayerCache]


class Padding(NamedTuple):
    """Which tokens of a forward count for a state: mask, booleans [B, L]; lengths int32 [B], where rows end within
    it."""

    mask: mx.array
    lengths: mx.array | None


class BatchedRing:
    """One layer's last keys and values of B rows. pads: places before each row's first token, below zero where the ring
    has dropped some; end: the place behind the newest token; count: tokens of the longest row, as the batch counts."""

    def __init__(self, caches: Sequence[RotatingKV], offsets: Offsets) -> None:
        held = [min(cache.offset, cache.size) for cache in caches]
        self.size, self.window, self._offsets = caches[0].size, caches[0].window, offsets
        self.end = self.count = max(held)
        self.pads = tuple(self.end - tokens for tokens in held)
        self.turned = False
        self._lengths: tuple[int, ...] = ()
        parts = [cache.newest(tokens) for cache, tokens in zip(caches, held, strict=True)]
        self.keys, self.values = (_gathered(side, self.pads) for side in zip(*parts, strict=True))
        self._lend(caches)

    @property
    def offset(self) -> Offset:
        """Tokens in each row."""
        return self._offsets(tuple(cache.offset for cache in self.caches))

    def arrays(self) -> list[mx.array]:
        """What is stored of all rows."""
        return [array for array in (self.keys, self.values) if array is not None]

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Store row b of `keys`, `values` [B, K, L, D] behind row b's."""
        offset, length = self.offset, keys.shape[2]
        mask = partial(self._mask, self.pads, min(self.size - 1, self.count), self.end, self.turned)
        if length == 1:
            self._write(keys, values)
        else:
            self._put_behind(keys, values)
        self.count += length
        for cache, tokens in zip(self.caches, self._lengths or (length,) * len(self.caches), strict=True):
            total = cache.offset + tokens
            cache.mark((total, min(total, self.size)))
        assert self.keys is not None
        assert self.values is not None
        seen = min(self.count, self.keys.shape[2])
        return DenseView(self.keys[:, :, :seen], self.values[:, :, :seen], offset, mask)

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Take `lengths` for the tokens of each row in the next forward, padding behind them."""
        self._lengths = lengths

    def finalize(self, longest: int) -> None:
        """Put the padding behind the rows of a forward of `longest` tokens before them."""
        late = tuple(longest - tokens for tokens in self._lengths)
        self.keys, self.values = _rolled(self.keys, late), _rolled(self.values, late)
        self.pads = tuple(pad + more for pad, more in zip(self.pads, late, strict=True))
        self._lengths = ()

    def take(self, rows: Sequence[int], offsets: Offsets) -> Self:
        """These rows alone, in this order."""
        twin, kept = self._twin(offsets), mx.array(list(rows))
        twin.keys, twin.values = (None if x is None else x[kept] for x in (self.keys, self.values))
        twin.pads = tuple(self.pads[row] for row in rows)
        twin._lend([self.caches[row] for row in rows])
        return twin

    def joined(self, other: Self, offsets: Offsets) -> Self:
        """These rows and the other's behind them."""
        sides = self._twin(offsets), other._twin(offsets)
        ours, theirs = sides
        begun = [side for side in sides if side.keys is not None]
        if begun and (ours.turned != theirs.turned or ours.end != theirs.end):
            ours._unturn()
            theirs._unturn()
        end = max(side.end for side in sides)
        ours.pads = tuple(pad + end - side.end for side in sides for pad in side.pads)
        if begun:
            room = max(side.keys.shape[2] for side in begun if side.keys is not None)
            laid = [side._laid(end, room, begun[0].arrays()) for side in sides]
            ours.keys, ours.values = (mx.concatenate(list(column)) for column in zip(*laid, strict=True))
        ours.end, ours.count = end, max(ours.count, theirs.count)
        ours._lend([*self.caches, *other.caches])
        return ours

    def _twin(self, offsets: Offsets) -> Self:
        twin = copy.copy(self)
        twin._offsets = offsets
        return twin

    def _lend(self, caches: Sequence[RotatingKV]) -> None:
        """Be where these rows' tokens lie."""
        self.caches = tuple(caches)
        for b, cache in enumerate(caches):
            cache.lend(partial(self._part, b))
            cache.mark((cache.offset, min(cache.offset, self.size)))

    def _part(self, b: int) -> tuple[Parts | None, Parts | None]:
        """Row b's newest tokens, the oldest first."""
        tokens = min(self.caches[b].offset, self.size)

        def row(array: mx.array | None) -> Parts | None:
            if array is None or not tokens:
                return None
            array = array[b : b + 1]
            if self.turned:
                array = mx.concatenate([array[:, :, self.end :], array[:, :, : self.end]], axis=2)
            else:
                array = array[:, :, : self.end]
            return (array[:, :, array.shape[2] - tokens :],)

        return row(self.keys), row(self.values)

    def _unturn(self) -> None:
        """Let the oldest token be the first."""
        if self.turned and self.keys is not None and self.values is not None:
            self.keys, self.values = (mx.roll(x, -self.end, 2) for x in (self.keys, self.values))
            self.end, self.turned = self.keys.shape[2], False

    def _put_behind(self, keys: mx.array, values: mx.array) -> None:
        """Several tokens behind the newest size - 1."""
        if self.keys is None or self.values is None:
            self.keys, self.values, self.end = keys, values, keys.shape[2]
            return
        self._unturn()
        surplus = max(self.end - self.size + 1, 0)
        self.pads = tuple(pad - surplus for pad in self.pads)
        self.keys = mx.concatenate([self.keys[:, :, surplus : self.end], keys], axis=2)
        self.values = mx.concatenate([self.values[:, :, surplus : self.end], values], axis=2)
        self.end = self.keys.shape[2]

    def _write(self, keys: mx.array, values: mx.array) -> None:
        """One token, over the oldest where the ring is full."""
        room = 0 if self.keys is None else self.keys.shape[2]
        if self.keys is None or self.values is None or (self.count >= room and room < self.size):
            more = min(STEP, self.size - self.count)
            self.keys, self.values = _longer(self.keys, keys, more), _longer(self.values, values, more)
            self.end, room = self.count, room + more
        if room > self.size:
            surplus = room - self.size
            self.keys, self.values = self.keys[:, :, surplus:], self.values[:, :, surplus:]
            self.pads, self.end = tuple(pad - surplus for pad in self.pads), self.size
        if self.end == self.size:
            self.turned, self.end = True, 0
        if self.turned:
            self.pads = tuple(pad - 1 for pad in self.pads)
        self.keys[:, :, self.end : self.end + 1] = keys
        self.values[:, :, self.end : self.end + 1] = values
        self.end += 1

    def _laid(self, end: int, room: int, like: Sequence[mx.array]) -> list[mx.array]:
        """Keys and values with the newest token before place `end` of `room`; zeros, of the shape of `like`, around."""
        laid = []
        for array, other in zip((self.keys, self.values), like, strict=True):
            if array is None:
                _, heads, _, dim = other.shape
                array = mx.zeros((len(self.pads), heads, 0, dim), other.dtype)
            before = end - self.end
            behind = room - array.shape[2] - before
            array = array[:, :, : array.shape[2] + min(behind, 0)]
            laid.append(mx.pad(array, [(0, 0), (0, 0), (before, max(behind, 0)), (0, 0)]))
        return laid

    def _mask(
        self, pads: tuple[int, ...], before: int, end: int, turned: bool, length: int, masks: Masks
    ) -> mx.array | str | None:
        """What is seen of a ring as it was before this forward."""
        surplus = max(end - self.size + int(length > 1), 0)
        turn = None
        if length == 1 and (turned or end >= self.size):
            surplus, turn = surplus + 1, 1 if end >= self.size else end + 1
        return masks.ring(tuple(pad - surplus for pad in pads), length, before, self.window, turn)


class BatchedState:
    """One layer's recurrent state of B rows. pads: places before each row's first token in the next forward; None once
    nobody minds, and then there is no mask."""

    def __init__(self, caches: Sequence[StateKV], offsets: Offsets) -> None:
        self._offsets = offsets
        columns = [tuple(column) for column in zip(*(cache.slots for cache in caches), strict=True)]
        begun = any(slot is not None for column in columns for slot in column)
        self.slots = tuple(_zero_filled([(slot, 1) for slot in column]) for column in columns)
        self.pads: tuple[int, ...] | None = None if begun else (0,) * len(caches)
        self._lengths: tuple[int, ...] = ()
        self._lend(caches)

    @property
    def offset(self) -> Offset:
        """Tokens in each row."""
        return self._offsets(tuple(cache.offset for cache in self.caches))

    def arrays(self) -> list[mx.array]:
        """What is stored of all rows."""
        return [slot for slot in self.slots if slot is not None]

    def append(self, length: int, *slots: mx.array | None) -> None:
        """Put the state after `length` more tokens, padding counted, in place of the present one."""
        self.slots = slots
        if self.pads is not None:
            self.pads = tuple(pad - length for pad in self.pads)
        for cache, tokens in zip(self.caches, self._lengths or (length,) * len(self.caches), strict=True):
            cache.offset += tokens

    def padding(self, length: int, masks: Masks) -> Padding | None:
        """Which of the next `length` tokens count; None where all do and mlx-lm has no mask."""
        if self.pads is None and not self._lengths:
            return None
        mask = masks.inside(self.pads or (), self._lengths, length)
        return Padding(mask, mx.array(self._lengths) if self._lengths else None)

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """As `BatchedRing.prepare`."""
        self._lengths = lengths

    def finalize(self) -> None:
        """There is no padding from now on."""
        self._lengths, self.pads = (), None

    def take(self, rows: Sequence[int], offsets: Offsets) -> Self:
        """These rows alone, in this order."""
        twin, kept = copy.copy(self), mx.array(list(rows))
        twin._offsets = offsets
        twin.slots = tuple(None if slot is None else slot[kept] for slot in self.slots)
        twin.pads = None if self.pads is None else tuple(self.pads[row] for row in rows)
        twin._lend([self.caches[row] for row in rows])
        return twin

    def joined(self, other: Self, offsets: Offsets) -> Self:
        """These rows and the other's behind them; a state that has not begun beside one that has is zeros."""
        twin, sides = copy.copy(self), (self, other)
        twin._offsets = offsets
        columns = zip(self.slots, other.slots, strict=True)
        twin.slots = tuple(_zero_filled([(a, len(self.caches)), (b, len(other.caches))]) for a, b in columns)
        if any(side.pads is not None for side in sides):
            twin.pads = tuple(pad for side in sides for pad in side.pads or (0,) * len(side.caches))
        twin._lend([*self.caches, *other.caches])
        return twin

    def _lend(self, caches: Sequence[StateKV]) -> None:
        """Be where these rows' states lie."""
        self.caches = tuple(caches)
        for b, cache in enumerate(caches):
            cache.lend(partial(self._part, b))

    def _part(self, b: int) -> tuple[mx.array | None, ...]:
        begun = self.caches[b].offset > 0
        return tuple(slot[b : b + 1] if slot is not None and begun else None for slot in self.slots)


BatchedLayer = PaddedKV | BatchedRing | BatchedState


class Batch:
    """The caches of B rows, layer by layer, as one forward of all takes them."""

    def __init__(self, rows: Sequence[Caches]) -> None:
        self.rows, self._offsets = list(rows), Offsets(always=True)
        self.layers = [self._layer([row[i] for row in rows]) for i in range(len(rows[0]))]

    def take(self, rows: Sequence[int]) -> Batch:
        """These rows alone, in this order. What is left of this batch is not to be used."""
        twin = copy.copy(self)
        twin._offsets, twin.rows = Offsets(always=True), [self.rows[row] for row in rows]
        twin.layers = [
            twin._layer([caches[i] for caches in twin.rows])
            if isinstance(layer, PaddedKV)
            else layer.take(rows, twin._offsets)
            for i, layer in enumerate(self.layers)
        ]
        return twin

    def joined(self, other: Batch) -> Batch:
        """These rows and the other's behind them. Neither of the two is to be used."""
        twin = copy.copy(self)
        twin._offsets, twin.rows = Offsets(always=True), [*self.rows, *other.rows]
        twin.layers = [
            twin._layer([caches[i] for caches in twin.rows])
            if isinstance(layer, PaddedKV)
            else layer.joined(behind, twin._offsets)  # type: ignore[arg-type]
            for i, (layer, behind) in enumerate(zip(self.layers, other.layers, strict=True))
        ]
        return twin

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Take `lengths` for the tokens of each row in the next forward; behind the shorter ones is padding."""
        if len(set(lengths)) > 1:
            for layer in self.layers:
                layer.prepare(lengths)

    def finalize(self, lengths: tuple[int, ...]) -> None:
        """Put the padding of that forward before the rows, where it stays."""
        if len(set(lengths)) == 1:
            return
        for layer in self.layers:
            if isinstance(layer, PaddedKV):
                layer.align()
            elif isinstance(layer, BatchedRing):
                layer.finalize(max(lengths))
            else:
                layer.finalize()

    def arrays(self) -> list[mx.array]:
        """What is stored of all rows."""
        return [array for layer in self.layers for array in layer.arrays()]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and their padding: what putting them together copied."""
        return sum(array.nbytes for array in self.arrays())

    def _layer(self, caches: Sequence[LayerCache]) -> BatchedLayer:
        first = caches[0]
        if isinstance(first, DenseKV):
            return PaddedKV(caches, self._offsets, masked=True)  # type: ignore[arg-type]
        if isinstance(first, RotatingKV):
            return BatchedRing(caches, self._offsets)  # type: ignore[arg-type]
        assert isinstance(first, StateKV), first.kind
        return BatchedState(caches, self._offsets)  # type: ignore[arg-type]


def release(caches: Caches) -> None:
    """Part a row that has ended from its batch: either would keep the other alive until cycles are collected."""
    for cache in caches:
        if isinstance(cache, StateKV):
            cache.slots = (None,) * len(cache.slots)
        elif isinstance(cache, DenseKV | RotatingKV):
            cache.keys = cache.values = None


def _gathered(rows: Sequence[mx.array | None], pads: Sequence[int]) -> mx.array | None:
    """Rows [1, K, ., D] behind their padding as one array [B, K, C, D]."""
    like = next((row for row in rows if row is not None), None)
    if like is None:
        return None
    _, heads, _, dim = like.shape
    empty = mx.zeros((1, heads, 0, dim), like.dtype)
    whole = [empty if row is None else row for row in rows]
    return mx.concatenate(
        [mx.pad(row, [(0, 0), (0, 0), (pad, 0), (0, 0)]) for row, pad in zip(whole, pads, strict=True)]
    )


def _longer(array: mx.array | None, like: mx.array, tokens: int) -> mx.array:
    """`array` with room for more tokens."""
    room = mx.zeros((*like.shape[:2], tokens, like.shape[3]), like.dtype)
    return room if array is None else mx.concatenate([array, room], axis=2)


def _rolled(array: mx.array | None, late: Sequence[int]) -> mx.array | None:
    """Each row of an array [B, K, C, D] so many places on; what comes out behind goes in before."""
    if array is None:
        return None
    place = (mx.arange(array.shape[2])[None] - mx.array(list(late))[:, None]) % array.shape[2]  # [B, C]
    return mx.take_along_axis(array, place[:, None, :, None], axis=2)


def _zero_filled(parts: Sequence[tuple[mx.array | None, int]]) -> mx.array | None:
    """Arrays [rows, ...] behind each other, zeros for so many rows where there is none; None where none is."""
    like = next((array for array, _ in parts if array is not None), None)
    if like is None:
        return None
    shape = like.shape[1:]
    return mx.concatenate([mx.zeros((rows, *shape), like.dtype) if array is None else array for array, rows in parts])
