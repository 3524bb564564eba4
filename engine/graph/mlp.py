"""Dense feed-forward blocks by `MlpSpec`, and the activations that experts share.

Letters: B rows, L length, D model dimension, M hidden dimension. What mlx-lm compiles is compiled here: fusion may
round differently from separate operations (mlx-lm 0.32.2, models/activations.py and the models themselves).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward, Positionwise
from engine.graph.norms import build_norm
from engine.graph.params import LinearMap, Weights
from engine.graph.spec import ArchSpec, MlpSpec


@partial(mx.compile, shapeless=True)
def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


@partial(mx.compile, shapeless=True)
def clamped_swiglu(gate: mx.array, up: mx.array, limit: float) -> mx.array:
    gate = mx.clip(nn.silu(gate), a_min=None, a_max=limit)
    return gate * mx.clip(up, a_min=-limit, a_max=limit)


def swiglu_float32(gate: mx.array, up: mx.array, limit: float) -> mx.array:
    """In float32, and bounded where the limit is above 0."""
    wide_gate, wide_up = gate.astype(mx.float32), up.astype(mx.float32)
    if limit > 0:
        wide_gate, wide_up = mx.minimum(wide_gate, limit), mx.clip(wide_up, -limit, limit)
    return swiglu(wide_gate, wide_up).astype(up.dtype)


@partial(mx.compile, shapeless=True)
def swiglu_oai(gate: mx.array, up: mx.array, alpha: float = 1.702, limit: float = 7.0) -> mx.array:
    gate, up = mx.minimum(gate, limit), mx.clip(up, -limit, limit)
    return (up + 1.0) * (gate * mx.sigmoid(alpha * gate))


@partial(mx.compile, shapeless=True)
def geglu_compiled(gate: mx.array, up: mx.array) -> mx.array:
    return nn.gelu_approx(gate) * up


@partial(mx.compile, shapeless=True)
def _gelu_above(x: mx.array, deviations: mx.array) -> mx.array:
    mean, std = mx.mean(x, axis=-1, keepdims=True), mx.std(x, axis=-1, keepdims=True)
    return nn.gelu_approx(mx.maximum(0, x - (mean + std * deviations.astype(std.dtype))))


def gelu_sparse(gate: mx.array, up: mx.array, sparsity: float) -> mx.array:
    """Gated gelu of what exceeds the quantile `sparsity` of a normal distribution with the gate's moments."""
    return _gelu_above(gate, math.sqrt(2.0) * mx.erfinv(mx.array(2 * sparsity - 1))) * up


@partial(mx.compile, shapeless=True)
def relu_squared(x: mx.array) -> mx.array:
    return nn.relu(x).square()


@partial(mx.compile, shapeless=True)
def gegelu(gate: mx.array, up: mx.array, limit: float) -> mx.array:
    gate = mx.where(mx.isinf(gate), gate, mx.clip(gate, a_min=None, a_max=limit))
    up = mx.where(mx.isinf(up), up, mx.clip(up, a_min=-limit, a_max=limit))
    return gate * mx.sigmoid(1.702 * gate) * (up + 1.0)


@partial(mx.compile, shapeless=True)
def situ(gate: mx.array, up: mx.array, beta: float, linear_beta: float | None) -> mx.array:
    """Gated silu with the gate, and with a second beta `up` too, bounded by beta * tanh(x / beta), in float32."""
    dtype = up.dtype
    gate, up = gate.astype(mx.float32), up.astype(mx.float32)
    bounded = beta * mx.tanh(gate / beta) * mx.sigmoid(gate)
    if linear_beta is not None:
        up = linear_beta * mx.tanh(up / linear_beta)
    return (bounded * up).astype(dtype)


def _plain(act: Callable[[mx.array], mx.array]) -> Callable[[mx.array, mx.array], mx.array]:
    """act(gate) * up as two operations."""
    return lambda gate, up: act(gate) * up


GATED: dict[str, Callable[..., mx.array]] = {
    "swiglu": swiglu,
    "swiglu_clamped": clamped_swiglu,
    "swiglu_float32": swiglu_float32,
    "swiglu_oai": swiglu_oai,
    "gegelu": gegelu,
    "silu": _plain(nn.silu),
    "relu": _plain(nn.relu),
    "relu2": _plain(nn.relu2),
    "gelu": _plain(nn.gelu),
    "gelu_approx": _plain(nn.gelu_approx),
    "gelu_sparse": gelu_sparse,
    "geglu_compiled": geglu_compiled,
    "situ": situ,
}
PLAIN: dict[str, Callable[[mx.array], mx.array]] = {
    "gelu": nn.gelu,
    "gelu_approx": nn.gelu_approx,
    # The default of mlx-lm's SwitchMLP, a module there: nn.GELU(approx="precise").
    "gelu_precise": nn.gelu_approx,
    "relu2": nn.relu2,
    "relu_squared": relu_squared,
}


def activation(spec: MlpSpec) -> Callable[..., mx.array]:
    """The activation of a spec: of (gate, up), or of one array where there is no gate."""
    act: Callable[..., mx.array] = (GATED if spec.gate or spec.fused else PLAIN)[spec.act]
    if spec.limit is None:
        return act
    limits = spec.limit if isinstance(spec.limit, tuple) else (spec.limit,)
    return lambda gate, up: act(gate, up, *limits)


class Mlp(Positionwise):
    """down(act(gate(x), up(x))), or down(act(up(x)))."""

    def __init__(self, spec: MlpSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        def linear(key: str, out: int, width: int) -> Any:
            return weights.linear(weights.join(path, key), out, width, spec.bias)

        self.act = activation(spec)
        self.fused = spec.fused
        self.gate = linear(spec.gate, spec.hidden, arch.dim) if spec.gate and not spec.fused else None
        self.up = linear(spec.up, spec.hidden * (2 if spec.fused else 1), arch.dim)
        self.joined: LinearMap | None = None  # gate and up as one map, see engine.graph.fused
        self.down = linear(spec.down, arch.dim, spec.hidden)
        self.sub_norm = build_norm(spec.sub_norm, spec.hidden, weights, path) if spec.sub_norm else None

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        if self.fused == "pairs":
            pairs = self.up(x)  # [B, L, 2M]
            hidden = self.act(pairs[..., ::2], pairs[..., 1::2])
        elif self.fused or self.joined is not None:
            gate, up = mx.split((self.joined or self.up)(x), 2, axis=-1)  # [B, L, M] twice
            hidden = self.act(gate, up)
        elif self.gate is not None:
            hidden = self.act(self.gate(x), self.up(x))
        else:
            hidden = self.act(self.up(x))
        return self.down(self.sub_norm(hidden) if self.sub_norm else hidden)
