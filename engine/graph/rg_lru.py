"""The real-gated linear recurrent unit in attention's place (mlx-lm 0.32.2, models/recurrent_gemma.py).

Letters: B rows, L length, D model dimension, C channels of the recurrence, H heads, E channels of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from engine.graph.conv import CausalConv
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec

DECAY = -8.0  # the log of the slowest decay, at an open gate


@dataclass(frozen=True, kw_only=True)
class RgLruSpec:
    """A short convolution and a gated recurrence of `channels` channels, times a gelu of the other branch.

    The state: what the convolution looks back at, and the recurrence's memory [B, C].
    """

    channels: int
    heads: int
    width: int
    caches: tuple[CacheSpec, ...] = (CacheSpec(kind="state", slots=2),)


def recur(x: mx.array, decay: mx.array, memory: mx.array | None) -> tuple[mx.array, mx.array]:
    """h_t = decay_t * h_{t-1} + x_t over x, decay [B, L, C] from `memory` [B, C] (None: 0): every h, and the last."""
    if memory is None and x.shape[1] == 1:
        return x, x[:, 0]
    h = mx.zeros_like(x[:, 0]) if memory is None else memory
    steps = []
    for t in range(x.shape[1]):
        h = decay[:, t] * h + x[:, t]
        steps.append(h)
    return mx.stack(steps, axis=1), h


class RgLru:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: RgLruSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        C, H, E = spec.channels, spec.heads, spec.channels // spec.heads
        at = f"{path}.rg_lru"
        self.gate = weights.linear(f"{path}.linear_y", C, arch.dim, bias=True)
        self.inward = weights.linear(f"{path}.linear_x", C, arch.dim, bias=True)
        self.outward = weights.linear(f"{path}.linear_out", arch.dim, C, bias=True)
        self.conv = CausalConv(weights, f"{path}.conv_1d", C, spec.width, bias=True)
        self.rate = weights.take(f"{at}.recurrent_param", (C,))
        self.gates = [
            (weights.take(f"{at}.{name}_gate_weight", (H, E, E)), weights.take(f"{at}.{name}_gate_bias", (H, E)))
            for name in ("input", "recurrent")
        ]

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        state = ctx.state(cache)
        past, memory = state.slots
        gate = nn.gelu_approx(self.gate(x))
        seen, past = self.conv(self.inward(x), past)  # [B, L, C]
        opened, slowed = (self._gated(seen, *pair) for pair in self.gates)
        log_decay = DECAY * slowed * nn.softplus(self.rate)
        gain = mx.sqrt(1 - mx.exp(2 * log_decay))
        if memory is None:
            gain[:, 0, :] = 1.0
        out, memory = recur(seen * opened * gain.astype(seen.dtype), mx.exp(log_decay), memory)
        state.append(x.shape[1], past, memory)
        return self.outward(out * gate)

    @staticmethod
    def _gated(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
        """A sigmoid gate on each channel from those of its head: [B, L, C] -> [B, L, C]."""
        heads = mx.unflatten(x, -1, bias.shape)  # [B, L, H, E]
        heads = (heads.swapaxes(1, 2) @ weight).swapaxes(1, 2) + bias
        return mx.sigmoid(heads.flatten(2, 3))
