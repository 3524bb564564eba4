"""Attention to blocks of keys: the nearest ones, and every n-th one further back, shifted from head to head.

Letters: B rows, H query heads, K key/value heads, L query length, S keys, E head dimension, D model dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class BlockSparseSpec:
    """Keys are seen by blocks of `size`: the `local` nearest ones, and every `stride`-th further back."""

    attention: AttentionSpec
    size: int
    local: int
    stride: int

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return tuple(replace(cache, only_native="attends blocks of keys") for cache in self.attention.caches)


class BlockSparse:
    """x [B, L, D] -> [B, L, D], with mlx-lm's bits (0.32.2, models/phi3small.py).

    Its causal mask is added as 0 and 1, so several tokens at once see the future of their block; one token at a time
    sees what it should. Register: "block-sparse-prefill".
    """

    def __init__(self, spec: BlockSparseSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.attention = Attention(spec.attention, arch, weights, path)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        queries, view = self.attention.append(x, ctx, cache)
        B, H, L, _ = queries.shape
        keys, values = view.dense()
        K, S = keys.shape[1:3]
        queries = (self.spec.attention.scale * queries).reshape(B, K, H // K, L, -1)
        scores = queries @ mx.expand_dims(keys, 2).swapaxes(-1, -2)  # [B, K, H/K, L, S]
        if L > 1:
            scores = scores + ctx.masks.causal(L, view.offset)
        seen = visible(self.spec, H, L, S).reshape(K, H // K, L, S)
        scores = scores + mx.where(seen, mx.array(0, scores.dtype), mx.array(-float("inf"), scores.dtype))
        scores = mx.softmax(scores, axis=-1, precise=True)
        return self.attention.output((scores @ mx.expand_dims(values, 2)).reshape(B, H, L, -1), x)


def visible(spec: BlockSparseSpec, heads: int, length: int, keys: int) -> mx.array:
    """Boolean [H, L, S]: the keys whose block each query's block sees; queries are counted from the last block's end,
    as mlx-lm does, full or not."""
    end = -(-keys // spec.size) * spec.size
    key = mx.arange(keys) // spec.size
    query = (mx.arange(end - length, end) // spec.size)[:, None]
    far = (key + mx.arange(1, heads + 1)[:, None, None]) % spec.stride == 0  # [H, 1, S]
    return (query >= key) & ((query - key < spec.local) | far)
