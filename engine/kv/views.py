"""How queries attend what a cache holds: keys and values as they are, or packed.

Letters: B rows, H query heads, K key/value heads, L query length, S keys, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import KVView, Offset
from engine.kv.masks import Masks
from engine.kv.storage import Affine, Parts

# The mask of `length` queries: an array [L, S], "causal", or None where every key may be seen.
Visible = Callable[[int, Masks], "mx.array | str | None"]


class DenseView(KVView):
    """Keys and values [B, K, S, D] as they are, in whatever order their cache keeps them."""

    def __init__(self, keys: mx.array, values: mx.array, offset: Offset, visible: Visible) -> None:
        self.keys, self.values, self.offset, self.visible = keys, values, offset, visible

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
        L, S = queries.shape[2], self.keys.shape[2]
        mask = _selected(self.visible(L, masks), select, masks, S, L)
        if softcap is not None:
            if bias is not None:
                raise InvalidValue("bias", "given", "None: nobody defines it on soft-capped scores")
            return self._attend_capped(queries, scale, softcap, mask, masks)
        if bias is not None:
            mask = _bounded(bias, _drawn(mask, masks, S, L))
        return mx.fast.scaled_dot_product_attention(
            queries, self.keys, self.values, scale=scale, mask=mask, sinks=sinks
        )

    def dense(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def over(self, keys: mx.array, values: mx.array) -> KVView:
        return DenseView(keys, values, self.offset, self.visible)

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
        seen = _drawn(mask, masks, keys.shape[-2], L)
        if seen is not None:
            scores = _bounded(scores, _by_heads(seen, H, K))
        scores = mx.softmax(scores, precise=True, axis=-1)
        return (scores @ values).reshape(B, H, L, -1)


class AffineView(KVView):
    """Packed keys and values, attended without unpacking them."""

    def __init__(
        self, keys: Parts, values: Parts, offset: Offset, visible: Visible, sides: tuple[Affine, Affine]
    ) -> None:
        self.keys, self.values, self.offset, self.visible, self.sides = keys, values, offset, visible, sides

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
        """The op order of mlx-lm's quantized_scaled_dot_product_attention (models/base.py); with sinks, where mlx-lm
        raises, that of mlx-optiq (runtime/kv/rotating.py)."""
        if softcap is not None:
            raise InvalidValue("kv", "a packed scheme", "native: nobody defines soft-capped scores on packed keys")
        B, H, L, D = queries.shape
        K = self.keys[0].shape[1]
        keys, values = self.keys, self.values
        queries = queries * scale
        if H > K:
            queries = queries.reshape(B, K, H // K, L, D)  # [B, K, H/K, L, D]
            keys, values = _each(keys), _each(values)  # [B, K, 1, S, ...]
            sinks = None if sinks is None else sinks.reshape(K, H // K)
        left, right = self.sides
        scores = _product(queries, keys, left, transpose=True)
        if bias is not None:
            scores = scores + _by_heads(bias, H, K)
        S = scores.shape[-1]
        mask = _drawn(_selected(self.visible(L, masks), select, masks, S, L), masks, S, L)
        if mask is not None:
            scores = _bounded(scores, _by_heads(mask, H, K))  # [..., L, S]
        weights = mx.softmax(scores, axis=-1, precise=True) if sinks is None else _with_sinks(scores, sinks)
        out = _product(weights, values, right, transpose=False)
        return out.reshape(B, H, L, out.shape[-1])

    def dense(self) -> tuple[mx.array, mx.array]:
        raise InvalidValue("kv", "a packed scheme", "native: this attention reads keys as they are")

    def over(self, keys: mx.array, values: mx.array) -> KVView:
        return DenseView(keys, values, self.offset, self.visible)


def _drawn(mask: mx.array | str | None, masks: Masks, keys: int, length: int) -> mx.array | None:
    """A mask as an array, of `length` queries that are the last of `keys`."""
    return masks.causal(length, keys - length) if isinstance(mask, str) else mask


def _selected(
    mask: mx.array | str | None, select: mx.array | None, masks: Masks, keys: int, length: int
) -> mx.array | str | None:
    """What may be seen by both."""
    if select is None:
        return mask
    seen = _drawn(mask, masks, keys, length)
    return select if seen is None else select & seen


def _bounded(scores: mx.array, seen: mx.array | None) -> mx.array:
    """Scores, the lowest number of their dtype where a key is not seen."""
    if seen is None:
        return scores
    return mx.where(seen, scores, mx.array(mx.finfo(scores.dtype).min, scores.dtype))


def _by_heads(x: mx.array, heads: int, kv_heads: int) -> mx.array:
    """x [L, S] or [B or 1, H or 1, L, S], to be laid over scores [B, H, L, S] or, grouped, [B, K, H/K, L, S]."""
    if x.ndim < 4 or heads == kv_heads:
        return x
    return mx.expand_dims(x, 2) if x.shape[1] == 1 else mx.unflatten(x, 1, (kv_heads, heads // kv_heads))


def _with_sinks(scores: mx.array, sinks: mx.array) -> mx.array:
    """Softmax of scores [..., L, S] in float32 with one more logit per head, which takes weight and gives no value."""
    sink = sinks.astype(mx.float32)[..., None, None]
    wide = scores.astype(mx.float32)
    peak = mx.maximum(wide.max(axis=-1, keepdims=True), sink)
    weights = mx.exp(wide - peak)
    total = weights.sum(axis=-1, keepdims=True) + mx.exp(sink - peak)
    return (weights / total).astype(scores.dtype)


def _product(x: mx.array, parts: Parts, side: Affine, *, transpose: bool) -> mx.array:
    """x times packed rows, or times their transpose."""
    packed, scales, biases = parts
    return mx.quantized_matmul(
        x, packed, scales, biases, transpose=transpose, group_size=side.group_size, bits=side.bits
    )


def _each(parts: Parts) -> Parts:
    return tuple(mx.expand_dims(part, -3) for part in parts)
