"""Keys and values of the last tokens only: a ring (sliding window) and a buffer cut to a chunk (chunked attention).

Letters as in base.py. The ring keeps decode order, not time order, as mlx-lm's does (models/cache.py
RotatingKVCache): sums follow the order of keys, so it is part of the bits.
"""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import (
    STEP,
    Parts,
    capacity,
    check_room,
    grown,
    grown_capacity,
    joined,
    part,
    room,
    trimmed,
    write,
)
from engine.kv.masks import Masks
from engine.kv.scheme import Scheme
from engine.kv.spec import CacheSpec


def in_ring(before: int, window: int, length: int, masks: Masks) -> mx.array | str | None:
    """`before`: tokens from before this forward that are still in the ring."""
    if length == 1:
        return None
    return masks.causal(length, before, window) if before + length > window else "causal"


def in_chunk(first: int, offset: int, chunk: int, length: int, masks: Masks) -> mx.array:
    """`first`: position of the first key."""
    return masks.chunked(first, offset, length, chunk)


class RotatingKV(BufferedKV):
    """A ring of `size` tokens, of which the first `keep` of all are never written over. One token is written in place;
    several are appended in time order, and the ring then holds up to size - 1 tokens before them."""

    def __init__(self, spec: CacheSpec, scheme: Scheme) -> None:
        assert spec.size is not None
        super().__init__(spec.layout, scheme)
        self.size, self.window, self.keep = spec.size, spec.window or spec.size, spec.keep
        self._next = 0  # where the next token is written

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, length = self.offset, keys.shape[2]
        new_keys, new_values = self.scheme.keys.pack(keys), self.scheme.values.pack(values)
        if length == 1:
            self._write(new_keys, new_values)
        else:
            self.keys, self.values = self._behind(self.keys, new_keys), self._behind(self.values, new_values)
            self._next = capacity(self.keys)
        self.offset += length
        assert self.keys is not None
        assert self.values is not None
        end = self.offset if self.offset < capacity(self.keys) else None
        visible = partial(in_ring, min(self.size - 1, start), self.window)
        return self.scheme.view(part(self.keys, 0, end), part(self.values, 0, end), start, visible, keys.dtype)

    def _behind(self, buffer: Parts | None, new: Parts) -> Parts:
        """The ring in time order, cut to size - 1 tokens, and `new` behind it."""
        if buffer is None:
            return new
        buffer = self._in_order(buffer)
        return joined((*self._cut(buffer, capacity(buffer) - self.size + 1), new))

    def _in_order(self, buffer: Parts) -> Parts:
        """The buffer in time order, the kept tokens first, without slack."""
        if self._next == capacity(buffer):
            return buffer
        if self._next >= self.offset:
            return part(buffer, 0, self._next)
        kept, older, newer = part(buffer, 0, self.keep), part(buffer, self._next), self._newer(buffer)
        return joined((kept, older, newer) if self.keep else (older, newer))

    def newest(self, tokens: int) -> tuple[mx.array | None, mx.array | None]:
        """Keys and values of the last `tokens` tokens, the oldest first; None where there are none. Only of a ring in
        the model's dtype that keeps no first tokens."""

        def last(buffer: Parts | None) -> mx.array | None:
            if buffer is None or not tokens:
                return None
            (array,) = self._in_order(buffer)
            return array[:, :, array.shape[2] - tokens :]

        return last(self.keys), last(self.values)

    def _newer(self, buffer: Parts) -> Parts:
        return part(buffer, self.keep, self._next)

    def _cut(self, buffer: Parts, surplus: int) -> tuple[Parts, ...]:
        """The buffer without the `surplus` oldest tokens behind the kept ones, in one or two pieces."""
        if surplus <= 0:
            return (buffer,)
        rest = part(buffer, surplus + self.keep)
        return (part(buffer, 0, self.keep), rest) if self.keep else (rest,)

    def place(self) -> tuple[int, int, int]:
        assert self.keys is not None
        assert self.values is not None
        self._make_room(part(self.keys, 0, 1), part(self.values, 0, 1))
        return self._next, 0, min(self.offset + 1, capacity(self.keys))

    def _write(self, keys: Parts, values: Parts) -> None:
        self._make_room(keys, values)
        assert self.keys is not None
        assert self.values is not None
        write(self.keys, keys, self._next)
        write(self.values, values, self._next)
        self._next += 1

    def _make_room(self, keys: Parts, values: Parts) -> None:
        """Let `_next` be where one token like these may be written."""
        used = self.offset
        if self.keys is None or self.values is None:
            tokens = min(STEP, self.size - used)
            self.keys, self.values = room(keys, tokens), room(values, tokens)
            self._next = used
        elif used >= capacity(self.keys) and capacity(self.keys) < self.size:
            tokens = min(STEP, self.size - used)
            self.keys = joined((self.keys, room(keys, tokens)))
            self.values = joined((self.values, room(values, tokens)))
            self._next = used
        surplus = capacity(self.keys) - self.size
        if surplus > 0:
            self.keys, self.values = joined(self._cut(self.keys, surplus)), joined(self._cut(self.values, surplus))
            self._next = self.size
        if self._next == self.size:
            self._next = self.keep

    def counted(self, marks: tuple[int, ...], space: int, length: int) -> tuple[tuple[int, ...], int]:
        offset, at = marks
        if length > 1:
            in_order = space if at < offset else min(space, at)  # before it has wrapped, the slack is left behind
            space = min(in_order, self.size - 1) + length
            return (offset + length, space), space
        if offset >= space and space < self.size:
            space, at = space + min(STEP, self.size - offset), offset
        if space > self.size:
            space, at = self.size, self.size
        return (offset + 1, (self.keep if at == self.size else at) + 1), space

    def counted_ones(self, marks: tuple[int, ...], space: int, count: int) -> tuple[tuple[int, ...], int]:
        while count and not (space == self.size <= marks[0] and marks[1] > self.keep):
            (marks, space), count = self.counted(marks, space, 1), count - 1
        offset, at = marks
        around = (at - self.keep - 1 + count) % (self.size - self.keep)
        return (offset + count, around + self.keep + 1) if count else marks, space

    def marks(self) -> tuple[int, ...]:
        return self.offset, self._next

    def mark(self, marks: tuple[int, ...]) -> None:
        self.offset, self._next = marks

    def trim(self, tokens: int) -> None:
        offset = trimmed(self.offset, tokens)
        if tokens and self.offset >= self.size:
            raise InvalidValue("trim", tokens, f"0: the ring of {self.size} has written over what came before")
        self.offset, self._next = offset, self._next - tokens

    def check(self) -> None:
        check_room((self.keys, self.values), min(self.offset, self.size))
        if self.keys is not None and not 0 <= self._next <= capacity(self.keys):
            raise InvalidValue("ring position", self._next, f"0..{capacity(self.keys)}")
        if self.offset < self.size and self._next != self.offset:
            raise InvalidValue("ring position", self._next, f"{self.offset}, as the ring has not wrapped")


class ChunkedKV(BufferedKV):
    """The last tokens of a chunked-attention layer: cut to one chunk before each append (mlx-lm's ChunkedKVCache)."""

    def __init__(self, spec: CacheSpec, scheme: Scheme) -> None:
        assert spec.size is not None
        super().__init__(spec.layout, scheme)
        self.chunk, self.first = spec.size, 0

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, held = self.offset, self.offset - self.first
        if self.keys is not None and self.values is not None and held > self.chunk:
            surplus = held - self.chunk
            self.first += surplus
            self.keys, self.values = part(self.keys, surplus, held), part(self.values, surplus, held)
            held = self.chunk
        end = held + keys.shape[2]
        new_keys, new_values = self.scheme.keys.pack(keys), self.scheme.values.pack(values)
        self.keys, self.values = grown(self.keys, new_keys, held), grown(self.values, new_values, held)
        write(self.keys, new_keys, held)
        write(self.values, new_values, held)
        self.offset += keys.shape[2]
        visible = partial(in_chunk, self.first, start, self.chunk)
        return self.scheme.view(part(self.keys, 0, end), part(self.values, 0, end), start, visible, keys.dtype)

    def place(self) -> tuple[int, int, int]:
        raise InvalidValue("compile", "step", f"none: nothing is written into a buffer that keeps {self.layout}")

    def counted(self, marks: tuple[int, ...], space: int, length: int) -> tuple[tuple[int, ...], int]:
        offset, first = marks
        held = offset - first
        if space and held > self.chunk:
            space, held, first = self.chunk, self.chunk, offset - self.chunk
        return (offset + length, first), grown_capacity(space, held, length)

    def counted_ones(self, marks: tuple[int, ...], space: int, count: int) -> tuple[tuple[int, ...], int]:
        while count and marks[0] - marks[1] <= self.chunk:
            (marks, space), count = self.counted(marks, space, 1), count - 1
        if count:  # from now on every token is put behind one chunk
            marks, space = self.counted((marks[0] + count - 1, marks[1]), space, 1)
        return marks, space

    def marks(self) -> tuple[int, ...]:
        return self.offset, self.first

    def mark(self, marks: tuple[int, ...]) -> None:
        self.offset, self.first = marks

    def trim(self, tokens: int) -> None:
        offset = trimmed(self.offset, tokens)
        if tokens and self.first:
            raise InvalidValue("trim", tokens, f"0: the chunk before position {self.first} is gone")
        self.offset = offset

    def check(self) -> None:
        check_room((self.keys, self.values), self.offset - self.first)
