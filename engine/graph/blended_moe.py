"""A mixture and a dense MLP, weighted against each other by a two-way softmax (mlx-lm 0.32.2, models/Klear.py).

Letters: B rows, L length, D model dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.experts import Moe
from engine.graph.forward import Forward
from engine.graph.mlp import Mlp
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, MlpSpec, MoeSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class BlendedMoeSpec:
    """`moe`, without a shared expert of its own, beside `shared`; `blend`: key of the map that weighs the two."""

    moe: MoeSpec
    shared: MlpSpec
    shared_at: str = "shared_experts"
    blend: str = "coefficient"
    caches: tuple[CacheSpec, ...] = ()


class BlendedMoe:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: BlendedMoeSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.moe = Moe(spec.moe, arch, weights, path)
        self.shared = Mlp(spec.shared, arch, weights, weights.join(path, spec.shared_at))
        self.blend = weights.linear(weights.join(path, spec.blend), 2, arch.dim, bias=True)

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        routed = self.moe(x)
        shares = mx.softmax(self.blend(x), axis=-1, precise=True)  # [B, L, 2]
        return routed * shares[..., :1] + self.shared(x) * shares[..., 1:]
