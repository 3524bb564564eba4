"""Attention to blocks of keys: the nearest ones, and every n-th one further back, shifted from head to head.

Letters: B rows, H query heads, K key/value heads, L query length, S keys, E head dimension.
"""

from __future__ import annotations

import mlx.core as mx

from engine.graph.spec import BlockSparse
from engine.kv.base import KVView
from engine.kv.masks import Masks


def visible(blocks: BlockSparse, heads: int, length: int, keys: int) -> mx.array:
    """Boolean [H, L, S]: the keys whose block each query's block sees; queries are counted from the last block's end,
    as mlx-lm does, full or not."""
    end = -(-keys // blocks.size) * blocks.size
    key = mx.arange(keys) // blocks.size
    query = (mx.arange(end - length, end) // blocks.size)[:, None]
    far = (key + mx.arange(1, heads + 1)[:, None, None]) % blocks.stride == 0  # [H, 1, S]
    return (query >= key) & ((query - key < blocks.local) | far)


def attend_blocks(queries: mx.array, view: KVView, scale: float, blocks: BlockSparse, masks: Masks) -> mx.array:
    """Queries [B, H, L, E] -> [B, H, L, E], with mlx-lm's bits (models/phi3small.py).

    Its causal mask is added as 0 and 1, so several tokens at once see the future of their block; one token at a time
    sees what it should. Register: "block-sparse-prefill".
    """
    B, H, L, _ = queries.shape
    keys, values = view.dense()
    K, S = keys.shape[1:3]
    queries = (scale * queries).reshape(B, K, H // K, L, -1)
    scores = queries @ mx.expand_dims(keys, 2).swapaxes(-1, -2)  # [B, K, H/K, L, S]
    if L > 1:
        scores = scores + masks.causal(L, view.offset)
    seen = visible(blocks, H, L, S).reshape(K, H // K, L, S)
    scores = scores + mx.where(seen, mx.array(0, scores.dtype), mx.array(-float("inf"), scores.dtype))
    scores = mx.softmax(scores, axis=-1, precise=True)
    return (scores @ mx.expand_dims(values, 2)).reshape(B, H, L, -1)
