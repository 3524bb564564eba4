"""A mixer of short convolutions in attention's place: queries gate values by keys, both seen through a filter.

Letters: B rows, L length, D model dimension, H query heads, K key/value heads, E head dimension. Order of operations as
in mlx-lm 0.32.2 (models/gear.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.conv import CausalConv
from engine.graph.forward import Forward
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, QkNorm
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class ConvGateSpec:
    """width: of the filters; norms: of each head's query and key; bias: of projections and filters."""

    heads: int
    kv_heads: int
    head_dim: int
    width: int
    norms: QkNorm
    bias: bool = False
    caches: tuple[CacheSpec, ...] = (CacheSpec(kind="state", slots=2),)


class ConvGate:
    """x [B, L, D] -> [B, L, D]; the state: the pasts of keys and of values [B, width - 1, K*E]."""

    def __init__(self, spec: ConvGateSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        wide, narrow = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.q, self.k, self.v = (
            weights.linear(f"{path}.{name}_proj", out, arch.dim, spec.bias)
            for name, out in (("q", wide), ("k", narrow), ("v", narrow))
        )
        self.o = weights.linear(f"{path}.o_proj", arch.dim, wide, spec.bias)
        assert spec.norms.k is not None
        self.q_norm, self.k_norm = (
            build_norm(norm, spec.head_dim, weights, path) for norm in (spec.norms.q, spec.norms.k)
        )
        self.filters = [
            CausalConv(weights, f"{path}.{name}_conv", narrow, spec.width, spec.bias) for name in ("key", "value")
        ]

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        state, heads, (B, L, _) = ctx.state(cache), (*x.shape[:2], -1, self.spec.head_dim), x.shape
        q = self.q_norm(self.q(x).reshape(heads)).reshape(B, L, -1)  # [B, L, H*E]
        k = self.k_norm(self.k(x).reshape(heads)).reshape(B, L, -1)  # [B, L, K*E]
        (k, keys), (v, values) = (
            conv(part, past) for conv, part, past in zip(self.filters, (k, self.v(x)), state.slots, strict=True)
        )
        state.append(L, keys, values)
        repeats = self.spec.heads // self.spec.kv_heads
        k, v = (mx.repeat(part.reshape(heads), repeats, axis=2).reshape(B, L, -1) for part in (k, v))
        return self.o(mx.sigmoid(q * k) * v)
