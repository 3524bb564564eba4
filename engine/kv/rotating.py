"""Keys and values of the last tokens only: a ring (sliding window) and a buffer cut to a chunk (chunked attention).

Letters as in base.py; W is the ring's size. The ring keeps decode order, not time order, as mlx-lm's does (models/
cache.py RotatingKVCache): sums follow the order of keys, so it is part of the bits.
"""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView, LayerKV
from engine.kv.dense import STEP, DenseView, check_room, describe_native, grown, room, trimmed
from engine.kv.masks import Masks
from engine.kv.spec import CacheSpec
from engine.types import CacheLayer


def in_ring(before: int, window: int, length: int, masks: Masks) -> mx.array | str | None:
    """`before`: tokens from before this forward that are still in the ring."""
    if length == 1:
        return None
    return masks.causal(length, before, window) if before + length > window else "causal"


def in_chunk(first: int, offset: int, chunk: int, length: int, masks: Masks) -> mx.array:
    """`first`: position of the first key."""
    return masks.chunked(first, offset, length, chunk)


class RotatingKV(LayerKV):
    """A ring of `size` tokens. One token is written in place; several are appended in time order, and the ring then
    holds up to size - 1 tokens before them."""

    def __init__(self, spec: CacheSpec) -> None:
        assert spec.size is not None
        self.layout = spec.layout
        self.size, self.window = spec.size, spec.window or spec.size
        self.offset = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._next = 0  # where the next token is written

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, length = self.offset, keys.shape[2]
        if length == 1:
            self._write(keys, values)
        else:
            self.keys = self._joined(self.keys, keys)
            self.values = self._joined(self.values, values)
            self._next = self.keys.shape[2]
        self.offset += length
        assert self.keys is not None
        assert self.values is not None
        kept = slice(self.offset) if self.offset < self.keys.shape[2] else slice(None)
        before = min(self.size - 1, start)
        visible = partial(in_ring, before, self.window)
        return DenseView(self.keys[..., kept, :], self.values[..., kept, :], start, visible)

    def _joined(self, buffer: mx.array | None, new: mx.array) -> mx.array:
        """The ring in time order, cut to size - 1 tokens, and `new` [B, K, L, D] behind it."""
        if buffer is None:
            return new
        if self._next < buffer.shape[2]:
            if self._next < self.offset:
                buffer = mx.concatenate([buffer[..., self._next :, :], buffer[..., : self._next, :]], axis=2)
            else:
                buffer = buffer[..., : self._next, :]
        surplus = buffer.shape[2] - self.size + 1
        if surplus > 0:
            buffer = buffer[..., surplus:, :]
        return mx.concatenate([buffer, new], axis=2)

    def _write(self, keys: mx.array, values: mx.array) -> None:
        used = self.offset
        if self.keys is None or self.values is None:
            tokens = min(STEP, self.size - used)
            self.keys, self.values = room(keys, tokens), room(values, tokens)
            self._next = used
        elif used >= self.keys.shape[2] and self.keys.shape[2] < self.size:
            tokens = min(STEP, self.size - used)
            self.keys = mx.concatenate([self.keys, room(keys, tokens)], axis=2)
            self.values = mx.concatenate([self.values, room(values, tokens)], axis=2)
            self._next = used
        surplus = self.keys.shape[2] - self.size
        if surplus > 0:
            self.keys, self.values = self.keys[..., surplus:, :], self.values[..., surplus:, :]
            self._next = self.size
        if self._next == self.size:
            self._next = 0
        self.keys[..., self._next : self._next + 1, :] = keys
        self.values[..., self._next : self._next + 1, :] = values
        self._next += 1

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        return (self.offset, self._next), (self.keys, self.values)

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        (self.offset, self._next), (self.keys, self.values) = marks, arrays

    def trim(self, tokens: int) -> None:
        offset = trimmed(self.offset, tokens)
        if tokens and self.offset >= self.size:
            raise InvalidValue("trim", tokens, f"0: the ring of {self.size} has written over what came before")
        self.offset, self._next = offset, self._next - tokens

    def check(self) -> None:
        check_room(self, min(self.offset, self.size))
        if self.keys is not None and not 0 <= self._next <= self.keys.shape[2]:
            raise InvalidValue("ring position", self._next, f"0..{self.keys.shape[2]}")
        if self.offset < self.size and self._next != self.offset:
            raise InvalidValue("ring position", self._next, f"{self.offset}, as the ring has not wrapped")

    def describe(self, layer: int) -> CacheLayer:
        return describe_native(self, self.layout, layer)


class ChunkedKV(LayerKV):
    """The last tokens of a chunked-attention layer: cut to one chunk before each append (mlx-lm's ChunkedKVCache)."""

    def __init__(self, spec: CacheSpec) -> None:
        assert spec.size is not None
        self.layout, self.chunk = spec.layout, spec.size
        self.offset = self.first = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, held = self.offset, self.offset - self.first
        if self.keys is not None and self.values is not None and held > self.chunk:
            surplus = held - self.chunk
            self.first += surplus
            self.keys, self.values = self.keys[..., surplus:held, :], self.values[..., surplus:held, :]
            held = self.chunk
        end = held + keys.shape[2]
        self.keys = grown(self.keys, keys, held)
        self.values = grown(self.values, values, held)
        self.keys[..., held:end, :] = keys
        self.values[..., held:end, :] = values
        self.offset += keys.shape[2]
        visible = partial(in_chunk, self.first, start, self.chunk)
        return DenseView(self.keys[..., :end, :], self.values[..., :end, :], start, visible)

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        return (self.offset, self.first), (self.keys, self.values)

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        (self.offset, self.first), (self.keys, self.values) = marks, arrays

    def trim(self, tokens: int) -> None:
        offset = trimmed(self.offset, tokens)
        if tokens and self.first:
            raise InvalidValue("trim", tokens, f"0: the chunk before position {self.first} is gone")
        self.offset = offset

    def check(self) -> None:
        check_room(self, self.offset - self.first)

    def describe(self, layer: int) -> CacheLayer:
        return describe_native(self, self.layout, layer)
