"""A gated short convolution in attention's place (mlx-lm 0.32.2, models/lfm2.py).

Letters: B rows, L length, D model dimension, W width of the filter.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.conv import CausalConv
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class ShortConvSpec:
    """out(c * conv(b * x)) with b, c and x from one projection; the state is the last W - 1 of b * x."""

    width: int
    bias: bool = False
    caches: tuple[CacheSpec, ...] = (CacheSpec(kind="state", slots=1),)


class ShortConv:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: ShortConvSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.inward = weights.linear(f"{path}.in_proj", 3 * arch.dim, arch.dim, spec.bias)
        self.conv = CausalConv(weights, f"{path}.conv", arch.dim, spec.width, spec.bias)
        self.outward = weights.linear(f"{path}.out_proj", arch.dim, arch.dim, spec.bias)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        state = ctx.state(cache)
        gate, out_gate, x = mx.split(self.inward(x), 3, axis=-1)  # [B, L, D] each
        (past,) = state.slots
        mixed, past = self.conv(gate * x, past, ctx.padding(cache))
        state.append(x.shape[1], past)
        return self.outward(out_gate * mixed)
