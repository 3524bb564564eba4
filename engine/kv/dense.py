"""Keys and values in the model's dtype.

Letters as in base.py; C is the allocated capacity, a multiple of the step.
"""

from __future__ import annotations

import mlx.core as mx

from engine.kv.base import KVView, LayerKV, scheme_name
from engine.kv.masks import Masks
from engine.types import CacheLayer

# mlx-lm grows its caches by this many tokens; peak memory is compared with it (models/cache.py).
STEP = 256


class DenseView(KVView):
    """`window`: keys that a token may see, where it is not all of them."""

    def __init__(self, keys: mx.array, values: mx.array, offset: int, window: int | None = None) -> None:
        self.keys, self.values, self.offset, self.window = keys, values, offset, window

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if softcap is not None:
            return self._attend_capped(queries, scale, softcap, masks)
        length = queries.shape[2]
        mask: mx.array | str | None = None if length == 1 else "causal"
        if self.window is not None:
            mask = masks.causal(length, self.offset, self.window)
        return mx.fast.scaled_dot_product_attention(
            queries, self.keys, self.values, scale=scale, mask=mask, sinks=sinks
        )

    def dense(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def _attend_capped(self, queries: mx.array, scale: float, softcap: float, masks: Masks) -> mx.array:
        """The op order of mlx-lm's gemma2 (models/gemma2.py): scale, product, cap, mask, precise softmax."""
        B, H, L, D = queries.shape
        K = self.keys.shape[1]
        keys, values = self.keys, self.values
        queries = queries * scale
        if H > K:
            queries = queries.reshape(B, K, H // K, L, D)  # [B, K, H/K, L, D]
            keys, values = mx.expand_dims(keys, 2), mx.expand_dims(values, 2)  # [B, K, 1, S, D]
        scores = queries @ keys.swapaxes(-1, -2)  # [..., L, S]
        scores = mx.tanh(scores / softcap)
        scores = scores * softcap
        if L > 1:
            floor = mx.array(mx.finfo(scores.dtype).min, scores.dtype)
            scores = mx.where(masks.causal(L, self.offset), scores, floor)
        scores = mx.softmax(scores, precise=True, axis=-1)
        return (scores @ values).reshape(B, H, L, -1)


class DenseKV(LayerKV):
    """A buffer that grows in steps; the tail past `offset` is slack."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.offset = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        start, end = self.offset, self.offset + keys.shape[2]
        self.keys = _grown(self.keys, keys, start)
        self.values = _grown(self.values, values, start)
        self.keys[..., start:end, :] = keys
        self.values[..., start:end, :] = values
        self.offset = end
        return DenseView(self.keys[..., :end, :], self.values[..., :end, :], start, self.window)

    def arrays(self) -> list[mx.array]:
        return [] if self.keys is None or self.values is None else [self.keys, self.values]

    def describe(self, layer: int) -> CacheLayer:
        arrays = self.arrays()
        return CacheLayer(
            layer=layer,
            scheme=scheme_name(None, None),
            offset=self.offset,
            dtype=str(arrays[0].dtype).removeprefix("mlx.core.") if arrays else "empty",
            bits=None,
            group_size=None,
            kv_bytes=sum(a.nbytes for a in arrays),
        )


def _grown(buffer: mx.array | None, new: mx.array, used: int) -> mx.array:
    """`buffer` with room for `new` [B, K, L, D] after `used` tokens: [B, K, C, D]."""
    B, K, L, D = new.shape
    if buffer is not None and used + L <= buffer.shape[2]:
        return buffer
    room = mx.zeros((B, K, (STEP + L - 1) // STEP * STEP, D), new.dtype)
    if buffer is None:
        return room
    return mx.concatenate([buffer[..., :used, :], room], axis=2)
