"""A feed-forward block without a gate whose activation, xIELU, has parameters of its own.

Letters: B rows, L length, D model dimension, M hidden dimension. Order of operations as in mlx-lm 0.32.2
(models/activations.py), where the activation is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward, Positionwise
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class XieluMlpSpec:
    """down_proj(xielu(up_proj(x))); the activation's four scalars are under act_fn."""

    hidden: int
    bias: bool = False
    caches: tuple[CacheSpec, ...] = ()


@partial(mx.compile, shapeless=True)
def xielu(x: mx.array, alpha_p: mx.array, alpha_n: mx.array, beta: mx.array, eps: mx.array) -> mx.array:
    alpha_p, alpha_n = nn.softplus(alpha_p), beta + nn.softplus(alpha_n)
    above = alpha_p * mx.square(x) + beta * x
    below = (mx.expm1(mx.minimum(x, eps)) - x) * alpha_n + beta * x
    return mx.where(x > 0, above, below)


class XieluMlp(Positionwise):
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: XieluMlpSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.up = weights.linear(f"{path}.up_proj", spec.hidden, arch.dim, spec.bias)
        self.down = weights.linear(f"{path}.down_proj", arch.dim, spec.hidden, spec.bias)
        self.scalars = [weights.take(f"{path}.act_fn.{name}", ()) for name in ("alpha_p", "alpha_n", "beta", "eps")]

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        return self.down(xielu(self.up(x), *self.scalars))  # [B, L, M] between the two
