"""Whether this machine sums a token's attention in the order of keys, so that keys which a mask hides behind the last
one leave its bits as they are.

MLX's own products on a CPU do. A BLAS may cut a long sum in parts whose size depends on its length (OpenBLAS 0.3.21
does beyond 320 keys with its Zen kernels, and at nearly every length with those for AVX-512, whose edges are of their
own), so there it is tried out: the order follows from shapes alone, so random numbers show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx

SEED = 5


@dataclass(frozen=True)
class Heads:
    """Of one attention: heads of queries and of keys and values, dimensions of a key and of a value."""

    queries: int
    keys: int
    dim: int
    v_dim: int


def in_order(heads: Heads, dtype: mx.Dtype, lengths: Iterable[int], reach: int) -> bool:
    """Whether each of these numbers of keys gives the same bits alone as before hidden ones, `reach` in all."""
    parts = mx.random.split(mx.random.key(SEED), 3)  # a key of its own: the thread's state is never used
    shapes = ((heads.queries, 1, heads.dim), (heads.keys, reach, heads.dim), (heads.keys, reach, heads.v_dim))
    queries, keys, values = (
        mx.random.normal((1, *shape), key=key).astype(dtype) for shape, key in zip(shapes, parts, strict=True)
    )
    scale = heads.dim**-0.5
    for length in lengths:
        seen = (mx.arange(reach) < length)[None]
        alone = attend(queries, keys[:, :, :length], values[:, :, :length], scale=scale)
        hidden = attend(queries, keys, values, scale=scale, mask=seen)
        if not mx.array_equal(alone, hidden).item():
            return False
    return True


def attend(queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None = None) -> mx.array:
    """As a cache's view does it."""
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
