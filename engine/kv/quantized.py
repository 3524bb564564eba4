"""Affine-quantised keys and values: packed integers with a scale and a bias per group of the head dimension.

Letters as in base.py. Groups lie along D, so a token's bytes never depend on its neighbours: converting a filled
cache and quantising token by token give the same bytes.
"""

from __future__ import annotations

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView, LayerKV, scheme_name
from engine.kv.dense import STEP, DenseKV, check_room, trimmed
from engine.kv.masks import Masks
from engine.types import CacheLayer

Packed = tuple[mx.array, mx.array, mx.array]


class QuantizedView(KVView):
    def __init__(
        self, keys: Packed, values: Packed, offset: int, bits: int, group_size: int, window: int | None = None
    ) -> None:
        self.keys, self.values, self.offset, self.window = keys, values, offset, window
        self.bits, self.group_size = bits, group_size

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """The op order of mlx-lm's quantized_scaled_dot_product_attention (models/base.py)."""
        if softcap is not None or sinks is not None:
            raise InvalidValue("kv", scheme_name(self.bits, self.group_size), "native for soft-caps and sinks")
        B, H, L, D = queries.shape
        K = self.keys[0].shape[1]
        keys, values = self.keys, self.values
        queries = queries * scale
        if H > K:
            queries = queries.reshape(B, K, H // K, L, D)  # [B, K, H/K, L, D]
            keys, values = _each(keys, -3), _each(values, -3)  # [B, K, 1, S, ...]
        scores = mx.quantized_matmul(queries, *keys, transpose=True, group_size=self.group_size, bits=self.bits)
        mask = self.mask(L, masks)
        if mask is not None:
            scores = mx.where(mask, scores, mx.finfo(scores.dtype).min)  # [..., L, S]
        scores = mx.softmax(scores, axis=-1, precise=True)
        out = mx.quantized_matmul(scores, *values, transpose=False, group_size=self.group_size, bits=self.bits)
        return out.reshape(B, H, L, out.shape[-1])

    def dense(self) -> tuple[mx.array, mx.array]:
        raise InvalidValue(
            "kv", scheme_name(self.bits, self.group_size), "native: this attention reads keys as they are"
        )

    def mask(self, length: int, masks: Masks) -> mx.array | None:
        if length == 1 and self.window is None:
            return None
        return masks.causal(length, self.offset, self.window)


class QuantizedKV(LayerKV):
    """Quantised on append. Made from a dense cache by `from_dense` (mlx-lm's conversion)."""

    def __init__(self, bits: int, group_size: int, window: int | None = None) -> None:
        self.bits, self.group_size, self.window = bits, group_size, window
        self.offset = 0
        self.keys: Packed | None = None
        self.values: Packed | None = None

    @classmethod
    def from_dense(cls, dense: DenseKV, bits: int, group_size: int) -> QuantizedKV:
        """Quantise a dense cache's whole buffer, slack included, as mlx-lm's `to_quantized` does."""
        cache = cls(bits, group_size, dense.window)
        cache.offset = dense.offset
        if dense.keys is not None and dense.values is not None:
            cache.keys = cache._quantize(dense.keys)
            cache.values = cache._quantize(dense.values)
        return cache

    def _quantize(self, x: mx.array) -> Packed:
        packed, scales, biases = mx.quantize(x, group_size=self.group_size, bits=self.bits)
        return packed, scales, biases

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, end = self.offset, self.offset + keys.shape[2]
        self.keys = self._stored(self.keys, self._quantize(keys), start, end)
        self.values = self._stored(self.values, self._quantize(values), start, end)
        self.offset = end
        keys_seen, values_seen = _upto(self.keys, end), _upto(self.values, end)
        return QuantizedView(keys_seen, values_seen, start, self.bits, self.group_size, self.window)

    @staticmethod
    def _stored(buffer: Packed | None, new: Packed, start: int, end: int) -> Packed:
        """`buffer` with `new` written at start:end, grown by whole steps where it does not fit."""
        length = end - start
        if buffer is None or end > buffer[0].shape[2]:
            room = tuple(
                mx.zeros((*n.shape[:2], (STEP + length - 1) // STEP * STEP, n.shape[3]), dtype=n.dtype) for n in new
            )
            kept = () if buffer is None else tuple(b[..., :start, :] for b in buffer)
            buffer = (
                room
                if buffer is None
                else tuple(  # type: ignore[assignment]
                    mx.concatenate([k, r], axis=2) for k, r in zip(kept, room, strict=True)
                )
            )
        assert buffer is not None
        for part, fresh in zip(buffer, new, strict=True):
            part[..., start:end, :] = fresh
        return buffer

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        return (self.offset,), (*(self.keys or (None,) * 3), *(self.values or (None,) * 3))

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        (self.offset,) = marks
        present = [a for a in arrays if a is not None]
        self.keys = (present[0], present[1], present[2]) if present else None
        self.values = (present[3], present[4], present[5]) if present else None

    def trim(self, tokens: int) -> None:
        self.offset = trimmed(self.offset, tokens)

    def check(self) -> None:
        check_room(self, self.offset)

    def describe(self, layer: int) -> CacheLayer:
        arrays = self.arrays()
        return CacheLayer(
            layer=layer,
            scheme=scheme_name(self.bits, self.group_size),
            offset=self.offset,
            dtype=str(arrays[0].dtype).removeprefix("mlx.core.") if arrays else "empty",
            bits=self.bits,
            group_size=self.group_size,
            kv_bytes=sum(a.nbytes for a in arrays),
        )


def _each(packed: Packed, axis: int) -> Packed:
    a, b, c = (mx.expand_dims(x, axis) for x in packed)
    return a, b, c


def _upto(packed: Packed, end: int) -> Packed:
    a, b, c = (x[..., :end, :] for x in packed)
    return a, b, c
