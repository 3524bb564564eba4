"""Grouped-query attention whose query head h reads key/value head h modulo their number (plamo).

Letters: B rows, H query heads, K key/value heads, L length, E head dimension, D model dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class CyclicSpec:
    """Attention with its query heads dealt out to the key/value heads in turn."""

    attention: AttentionSpec

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.attention.caches


def regrouped(x: mx.array, groups: int) -> mx.array:
    """Heads of x [B, H, L, E], written in `groups` rows, are read by columns."""
    B, H, L, E = x.shape
    return x.reshape(B, groups, H // groups, L, E).swapaxes(1, 2).reshape(B, H, L, E)


class Cyclic:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: CyclicSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec.attention
        self.attention = Attention(spec.attention, arch, weights, path)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec = self.spec
        queries, view = self.attention.append(x, ctx, cache)  # [B, H, L, E], head r * K + k reads k
        out = view.attend(regrouped(queries, spec.heads // spec.kv_heads), spec.scale, ctx.masks)
        return self.attention.output(regrouped(out, spec.kv_heads), x)
