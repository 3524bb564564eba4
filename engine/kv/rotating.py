"""Keys and values of the last tokens only: a ring (sliding window) and a buffer cut to a chunk (chunked attention).

Letters as in base.py; W is the ring's size. The ring keeps decode order, not time order, as mlx-lm's does (models/
cache.py RotatingKVCache): sums follow the order of keys, so it is part of the bits.
"""

from __future__ import annotations

import mlx.core as mx

from engine.kv.base import KVView, LayerKV, scheme_name
from engine.kv.dense import STEP
from engine.kv.masks import Masks
from engine.kv.spec import CacheSpec
from engine.types import CacheLayer


class RotatingView(KVView):
    """`before`: tokens seen before this forward that are still in the ring."""

    def __init__(self, keys: mx.array, values: mx.array, offset: int, before: int, window: int) -> None:
        self.keys, self.values, self.offset = keys, values, offset
        self.before, self.window = before, window

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        assert softcap is None  # no architecture soft-caps a sliding layer; KVPlan checks
        length = queries.shape[2]
        mask: mx.array | str | None = None
        if length > 1:
            windowed = self.before + length > self.window
            mask = masks.causal(length, self.before, self.window) if windowed else "causal"
        return mx.fast.scaled_dot_product_attention(
            queries, self.keys, self.values, scale=scale, mask=mask, sinks=sinks
        )

    def dense(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values


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
        return RotatingView(self.keys[..., kept, :], self.values[..., kept, :], start, before, self.window)

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
            room = min(STEP, self.size - used)
            self.keys, self.values = _room(keys, room), _room(values, room)
            self._next = used
        elif used >= self.keys.shape[2] and self.keys.shape[2] < self.size:
            room = min(STEP, self.size - used)
            self.keys = mx.concatenate([self.keys, _room(keys, room)], axis=2)
            self.values = mx.concatenate([self.values, _room(values, room)], axis=2)
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

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None or self.values is None else [self.keys, self.values]

    def describe(self, layer: int) -> CacheLayer:
        return _described(self, self.layout, layer)


class ChunkedView(KVView):
    """`first`: position of the first key."""

    def __init__(self, keys: mx.array, values: mx.array, offset: int, first: int, chunk: int) -> None:
        self.keys, self.values, self.offset = keys, values, offset
        self.first, self.chunk = first, chunk

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        assert softcap is None  # no architecture soft-caps a chunked layer; KVPlan checks
        mask = masks.chunked(self.first, self.offset, queries.shape[2], self.chunk)
        return mx.fast.scaled_dot_product_attention(
            queries, self.keys, self.values, scale=scale, mask=mask, sinks=sinks
        )

    def dense(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values


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
        self.keys = _with_room(self.keys, keys, held)
        self.values = _with_room(self.values, values, held)
        self.keys[..., held:end, :] = keys
        self.values[..., held:end, :] = values
        self.offset += keys.shape[2]
        return ChunkedView(self.keys[..., :end, :], self.values[..., :end, :], start, self.first, self.chunk)

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None or self.values is None else [self.keys, self.values]

    def describe(self, layer: int) -> CacheLayer:
        return _described(self, self.layout, layer)


def _room(like: mx.array, tokens: int) -> mx.array:
    """Zeros for `tokens` tokens: [B, K, tokens, D]."""
    B, K, _, D = like.shape
    return mx.zeros((B, K, tokens, D), like.dtype)


def _with_room(buffer: mx.array | None, new: mx.array, used: int) -> mx.array:
    """`buffer` with room for `new` behind `used` tokens."""
    length = new.shape[2]
    if buffer is not None and used + length <= buffer.shape[2]:
        return buffer
    room = _room(new, (STEP + length - 1) // STEP * STEP)
    return room if buffer is None else mx.concatenate([buffer[..., :used, :], room], axis=2)


def _described(kv: LayerKV, layout: str, layer: int) -> CacheLayer:
    arrays = kv.arrays()
    return CacheLayer(
        layer=layer,
        scheme=scheme_name(None, None),
        layout=layout,
        offset=kv.offset,
        dtype=str(arrays[0].dtype).removeprefix("mlx.core.") if arrays else "empty",
        bits=None,
        group_size=None,
        kv_bytes=sum(a.nbytes for a in arrays),
    )
