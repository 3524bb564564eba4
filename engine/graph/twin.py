"""A layer in which two mixers read the same norm side by side, each with caches of its own.

Letters: B rows, L length, D model dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward, build
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, Mixer, MlpSpec, NormSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class TwinLayerSpec:
    """h = x + first(norm(x)) + second(norm(x)), then h + mlp(mlp_norm(h)). keys: of the three, below the layer."""

    first: Mixer
    second: Mixer
    mlp: MlpSpec
    keys: tuple[str, str, str]
    norm: NormSpec
    mlp_norm: NormSpec

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return (*self.first.caches, *self.second.caches)


class TwinLayer:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: TwinLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        parts = (spec.first, spec.second, spec.mlp)
        made = [build(s, arch, weights, f"{path}.{key}") for s, key in zip(parts, spec.keys, strict=True)]
        self.first, self.second, self.mlp = made
        self.norm, self.mlp_norm = (build_norm(n, arch.dim, weights, path) for n in (spec.norm, spec.mlp_norm))
        self.further = len(spec.first.caches)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        read = self.norm(x)
        x = x + self.first(read, ctx, cache) + self.second(read, ctx, cache + self.further)
        return x + self.mlp(self.mlp_norm(x), ctx, cache)
