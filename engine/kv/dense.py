"""Every token is kept. Letters as in base.py."""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from engine.kv.base import KVView
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import check_room, grown, grown_capacity, part, roomy, trimmed, whole_steps, write
from engine.kv.masks import Masks
from engine.kv.scheme import Scheme
from engine.kv.spec import CacheSpec


def causal(offset: int, window: int | None, length: int, masks: Masks) -> mx.array | str | None:
    """Every earlier key, or the last `window` of them."""
    if window is not None:
        return masks.causal(length, offset, window)
    return None if length == 1 else "causal"


class DenseKV(BufferedKV):
    """A buffer that grows in steps; the tail past `offset` is slack."""

    def __init__(self, spec: CacheSpec, scheme: Scheme) -> None:
        super().__init__(spec.layout, scheme)
        self.window = spec.window

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, end = self.offset, self.offset + keys.shape[2]
        new_keys, new_values = self.scheme.keys.pack(keys), self.scheme.values.pack(values)
        self.keys, self.values = grown(self.keys, new_keys, start), grown(self.values, new_values, start)
        write(self.keys, new_keys, start)
        write(self.values, new_values, start)
        self.offset = end
        visible = partial(causal, start, self.window)
        return self.scheme.view(part(self.keys, 0, end), part(self.values, 0, end), start, visible, keys.dtype)

    def place(self) -> tuple[int, int, int]:
        assert self.keys is not None
        assert self.values is not None
        at = self.offset
        after = whole_steps(at + 1)
        self.keys, self.values = roomy(self.keys, at, after), roomy(self.values, at, after)
        return at, 0 if self.window is None else max(at + 1 - self.window, 0), at + 1

    def counted(self, marks: tuple[int, ...], space: int, length: int) -> tuple[tuple[int, ...], int]:
        (offset,) = marks
        return (offset + length,), grown_capacity(space, offset, length)

    def counted_ones(self, marks: tuple[int, ...], space: int, count: int) -> tuple[tuple[int, ...], int]:
        (offset,) = marks
        return (offset + count,), space + whole_steps(max(offset + count - space, 0))

    def marks(self) -> tuple[int, ...]:
        return (self.offset,)

    def mark(self, marks: tuple[int, ...]) -> None:
        (self.offset,) = marks

    def trim(self, tokens: int) -> None:
        self.offset = trimmed(self.offset, tokens)

    def check(self) -> None:
        check_room((self.keys, self.values), self.offset)
