"""Attention whose keys and values are each mixed with those of the token before (mlx-lm 0.32.2, models/baichuan_m1.py).

Letters: B rows, L length, D model dimension, H query heads, K key/value heads, E head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class BlurredSpec:
    """attention: its qkv in blocks, with a rope. The state: the last token's key and value [B, K, 1, E], unmixed."""

    attention: AttentionSpec

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return (CacheSpec(kind="state", slots=2), *self.attention.caches)


def mixed(x: mx.array, before: mx.array | None, filters: mx.array) -> mx.array:
    """x [B, K, L, E] and the token before each, which for the first is `before` (None: 0), by filters [K, 2]."""
    K, W = filters.shape
    earlier, own = mx.split(filters.reshape(1, K, W, 1), 2, axis=2)
    before = mx.zeros_like(x[:, :, :1]) if before is None else before
    return mx.concatenate([before, x[:, :, :-1]], axis=2) * earlier + x * own


class Blurred:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: BlurredSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = a = spec.attention
        assert a.rope is not None
        self.rope = build_rope(a.rope)
        self.qkv = weights.linear(f"{path}.{a.qkv}", (a.heads + 2 * a.kv_heads) * a.head_dim, arch.dim, a.qkv_bias)
        self.out = weights.linear(f"{path}.{a.o}", arch.dim, a.heads * a.head_dim, a.out_bias)
        shape = (1, 1, a.kv_heads, 1, 2)
        self.filters = [weights.take(f"{path}.conv_{name}", shape).reshape(-1, 2) for name in "kv"]

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        B, L, _ = x.shape
        a, state, kv = self.spec, ctx.state(cache), ctx.kv(cache + 1)
        offset = kv.offset
        parts = mx.unflatten(self.qkv(x), -1, (-1, a.head_dim)).transpose(0, 2, 1, 3)  # [B, H + 2K, L, E]
        queries, *own = mx.split(parts, [a.heads, a.heads + a.kv_heads], axis=1)
        pasts = zip(own, state.slots, self.filters, strict=True)
        keys, values = (mixed(y, before, filters) for y, before, filters in pasts)
        state.append(L, *(mx.contiguous(y[:, :, -1:]) for y in own))
        view = kv.append(self.rope(keys, offset), values)
        out = view.attend(self.rope(queries, offset), a.scale, ctx.masks)  # [B, H, L, E]
        return self.out(out.transpose(0, 2, 1, 3).reshape(B, L, -1))
