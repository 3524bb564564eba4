"""Keys and values in the model's dtype.

Letters as in base.py; C is the allocated capacity, a multiple of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView, LayerKV, scheme_name
from engine.kv.masks import Masks
from engine.types import CacheLayer

# mlx-lm grows its caches by this many tokens; peak memory is compared with it (models/cache.py).
STEP = 256


# The mask of `length` queries: an array [L, S], "causal", or None where every key may be seen.
Visible = Callable[[int, Masks], "mx.array | str | None"]


def causal(offset: int, window: int | None, length: int, masks: Masks) -> mx.array | str | None:
    """Every earlier key, or the last `window` of them."""
    if window is not None:
        return masks.causal(length, offset, window)
    return None if length == 1 else "causal"


class DenseView(KVView):
    """Keys and values as they are, in whatever order their cache keeps them; `visible` is the cache's mask."""

    def __init__(self, keys: mx.array, values: mx.array, offset: int, visible: Visible) -> None:
        self.keys, self.values, self.offset, self.visible = keys, values, offset, visible

    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        mask = self.visible(queries.shape[2], masks)
        if softcap is not None:
            return self._attend_capped(queries, scale, softcap, mask, masks)
        return mx.fast.scaled_dot_product_attention(
            queries, self.keys, self.values, scale=scale, mask=mask, sinks=sinks
        )

    def dense(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def mask(self, length: int, masks: Masks) -> mx.array | str | None:
        return self.visible(length, masks)

    def _attend_capped(
        self, queries: mx.array, scale: float, softcap: float, mask: mx.array | str | None, masks: Masks
    ) -> mx.array:
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
        if mask is not None:
            seen = masks.causal(L, keys.shape[-2] - L) if isinstance(mask, str) else mask
            scores = mx.where(seen, scores, mx.array(mx.finfo(scores.dtype).min, scores.dtype))
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
        self.keys = grown(self.keys, keys, start)
        self.values = grown(self.values, values, start)
        self.keys[..., start:end, :] = keys
        self.values[..., start:end, :] = values
        self.offset = end
        return DenseView(self.keys[..., :end, :], self.values[..., :end, :], start, partial(causal, start, self.window))

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        return (self.offset,), (self.keys, self.values)

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        (self.offset,), (self.keys, self.values) = marks, arrays

    def trim(self, tokens: int) -> None:
        self.offset = trimmed(self.offset, tokens)

    def check(self) -> None:
        check_room(self, self.offset)

    def describe(self, layer: int) -> CacheLayer:
        return describe_native(self, "full", layer)


def describe_native(kv: LayerKV, layout: str, layer: int) -> CacheLayer:
    """What a cache in the model's dtype stores."""
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


def trimmed(offset: int, tokens: int) -> int:
    """The offset without the last `tokens`; more than there are is `InvalidValue`."""
    if not 0 <= tokens <= offset:
        raise InvalidValue("trim", tokens, f"0..{offset} tokens")
    return offset - tokens


def check_room(kv: LayerKV, tokens: int) -> None:
    """`InvalidValue` if the arrays [B, K, C, ...] have no room for the tokens that the counters say are there."""
    arrays = kv.arrays()
    if tokens < 0 or (tokens and not arrays):
        raise InvalidValue("cache offset", tokens, "0 in an empty cache")
    for array in arrays:
        if array.shape[2] < tokens:
            raise InvalidValue("cache offset", tokens, f"at most {array.shape[2]}, what its arrays have room for")


def grown(buffer: mx.array | None, new: mx.array, used: int) -> mx.array:
    """`buffer` with room for `new` [B, K, L, D] after `used` tokens: [B, K, C, D]."""
    L = new.shape[2]
    if buffer is not None and used + L <= buffer.shape[2]:
        return buffer
    more = room(new, (STEP + L - 1) // STEP * STEP)
    return more if buffer is None else mx.concatenate([buffer[..., :used, :], more], axis=2)


def room(like: mx.array, tokens: int) -> mx.array:
    """Zeros for `tokens` tokens: [B, K, tokens, D]."""
    B, K, _, D = like.shape
    return mx.zeros((B, K, tokens, D), like.dtype)
