"""Attention that mixes two scopes by a gate on each query: all keys of an earlier pass, and a window of its own.

Letters: B rows, H query heads, L length, E head dimension, D model dimension. Compiled as in mlx-lm 0.32.2
(models/iquestloopcoder.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class TwoScopesSpec:
    """local: the projections and the window; reads: the other scope's cache; gate: key of its weight and bias."""

    local: AttentionSpec
    reads: int
    gate: str

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.local.caches


@partial(mx.compile, shapeless=True)
def _gate(queries: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
    """Queries [B, H, L, E], weight [H, E], bias [H] -> [B, H, L, 1]."""
    logits = queries @ weight[:, None, :].swapaxes(-1, -2)
    return mx.sigmoid(logits + bias[..., None, None])


@partial(mx.compile, shapeless=True)
def _mix(gate: mx.array, there: mx.array, here: mx.array) -> mx.array:
    return gate * there + (1 - gate) * here


class TwoScopes:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: TwoScopesSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.local = Attention(spec.local, arch, weights, path)
        self.weight = weights.take(f"{spec.gate}.weight", (spec.local.heads, spec.local.head_dim))
        self.bias = weights.take(f"{spec.gate}.bias", (spec.local.heads,))

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        queries, view = self.local.append(x, ctx, cache)
        scale = self.spec.local.scale
        there = ctx.views[self.spec.reads].attend(queries, scale, ctx.masks)
        here = view.attend(queries, scale, ctx.masks)
        return self.local.output(_mix(_gate(queries, self.weight, self.bias), there, here), x)
