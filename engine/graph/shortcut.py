"""Two layers with a mixture beside the second: it reads what the first one's MLP reads, and is added at the end.

Letters: B rows, L length, D model dimension. Order of operations as in mlx-lm 0.32.2 (models/longcat_flash.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.graph.experts import Experts, Router, combine
from engine.graph.forward import Forward, Positionwise, build
from engine.graph.layers import Layer
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class ShortcutLayerSpec:
    """Two sequential layers with norms before their mixers only, and `beside`, whose keys are under `beside_key`."""

    first: LayerSpec
    second: LayerSpec
    beside: Any
    beside_key: str = "mlp"

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.first.caches + self.second.caches


@dataclass(frozen=True, kw_only=True)
class IdentityMoeSpec:
    """A mixture whose router knows `identities` more experts, the last ones, which return x itself."""

    moe: MoeSpec
    identities: int
    caches: tuple[CacheSpec, ...] = ()


class ShortcutLayer:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: ShortcutLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.first, self.second = (Layer(half, arch, weights, path) for half in (spec.first, spec.second))
        self.beside = build(spec.beside, arch, weights, weights.join(path, spec.beside_key))

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        first = self.first
        assert first.attention is not None
        assert first.mlp is not None
        assert first.pre_attn is not None
        assert first.pre_mlp is not None
        x = x + first.attention(first.pre_attn(x), ctx, cache)
        h = first.pre_mlp(x)
        beside = self.beside(h, ctx, cache)
        return self.second(x + first.mlp(h, ctx, cache), ctx, cache + len(first.spec.caches)) + beside


class IdentityMoe(Positionwise):
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: IdentityMoeSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        moe = spec.moe
        self.real = moe.experts
        self.router = Router(moe.router, moe.experts + spec.identities, moe.top_k, arch.dim, weights, path)
        self.experts = Experts(moe.expert, moe.experts, arch.dim, weights, weights.join(path, moe.at))

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        ids, scores = self.router(x)  # [B, L, k] twice
        same = ids >= self.real
        y = self.experts(x, mx.where(same, 0, ids))  # [B, L, k, D]
        out = combine(y, mx.where(same, 0.0, scores))
        return out + x * mx.where(same, scores, 0.0).sum(axis=-1, keepdims=True)
