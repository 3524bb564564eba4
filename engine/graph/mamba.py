"""Mamba: a state of N values a channel that is carried token by token.

Letters: B rows, L length, D model dimension, C channels, N state size, R rank of the step sizes.

In each channel, with rate < 0: state_t [N] = exp(dt_t rate) state_(t-1) + dt_t x_t b_t, y_t = state_t c_t + skip x_t.
Order of operations as in mlx-lm 0.32.2 (models/mamba.py, models/jamba.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from engine.graph.conv import CausalConv
from engine.graph.forward import Forward
from engine.graph.mlp import swiglu
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, NormSpec
from engine.kv.spec import CacheSpec


@mx.compile
def _fused(state: mx.array, kept: mx.array, entered: mx.array) -> mx.array:
    return state * kept + entered


def scan(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array | None]:
    """x, dt [B, L, C], rates [C, N], b, c [B, L, N], state [B, C, N] or None: y [B, L, C] and the state after it."""
    entered, kept = (dt * x)[..., None] * b[..., None, :], mx.exp(dt[..., None] * rates)  # [B, L, C, N]
    states = []
    for t in range(x.shape[1]):
        state = entered[:, t] if state is None else _fused(state, kept[:, t], entered[:, t]).astype(entered.dtype)
        states.append(state)
    return (mx.stack(states, axis=1) @ c[..., None]).squeeze(-1), state


def scan_plain(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array | None]:
    """The same, a token at a time."""
    steps = []
    for t in range(x.shape[1]):
        y, state = step(x[:, t], dt[:, t], rates, b[:, t], c[:, t], state)
        steps.append(y)
    return mx.stack(steps, axis=1), state


def step(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array]:
    """One token: x, dt [B, C], rates [C, N], b, c [B, N], state [B, C, N] or None -> y [B, C], the state."""
    entered = (dt * x)[..., None] * b[:, None, :]  # [B, C, N]
    state = entered if state is None else entered + state * mx.exp(dt[..., None] * rates)
    return (state @ c[..., None]).squeeze(-1), state


@dataclass(frozen=True, kw_only=True)
class MambaSpec:
    """One projection gives [x | gate]; x passes a convolution of `width` tokens, and a second projection of it gives
    [dt | b | c].

    norms: of these three. together: all tokens' second projections at once, where mlx-lm makes them so; else, as
    there, each token's by itself, whose bits differ. plain: the states token by token, uncompiled.
    """

    channels: int
    state: int
    rank: int
    width: int
    conv_bias: bool
    bias: bool
    norms: tuple[NormSpec, NormSpec, NormSpec] | None = None
    together: bool = False
    plain: bool = False
    caches: tuple[CacheSpec, ...] = (CacheSpec(kind="state", slots=2),)  # past [B, W - 1, C], states [B, C, N]


class Mamba:
    def __init__(self, spec: MambaSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        channels, N = spec.channels, spec.state
        self.spec, self.cuts = spec, [spec.rank, spec.rank + N]
        self.scan = scan_plain if spec.plain else scan
        self.project = weights.linear(f"{path}.in_proj", 2 * channels, arch.dim, spec.bias)
        self.conv = CausalConv(weights, f"{path}.conv1d", channels, spec.width, spec.conv_bias)
        self.split = weights.linear(f"{path}.x_proj", spec.rank + 2 * N, channels, bias=False)
        self.step_sizes = weights.linear(f"{path}.dt_proj", channels, spec.rank, bias=True)
        widths = (spec.rank, N, N)
        self.norms = [build_norm(n, dim, weights, path) for n, dim in zip(spec.norms or (), widths, strict=False)]
        self.rates = -mx.exp(weights.take(f"{path}.A_log", (channels, N)))
        self.skip = weights.take(f"{path}.D", (channels,))
        self.out = weights.linear(f"{path}.out_proj", arch.dim, channels, spec.bias)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        """x [B, L, D] -> [B, L, D]; carries the state on in ctx.caches[cache]."""
        L = x.shape[1]
        memory = ctx.state(cache)
        past, state = memory.slots
        values, gate = mx.split(self.project(x), 2, axis=-1)  # [B, L, C] twice
        values, past = self.conv(values, past)
        values = nn.silu(values)
        if self.spec.together:
            y, state = self.scan(values, *self._parts(values), state)
            y = y + self.skip * values
        else:
            steps = []
            for t in range(L):
                token = values[:, t]
                seen, state = step(token, *self._parts(token), state)
                steps.append(seen + self.skip * token)
            y = mx.stack(steps, axis=1)
        memory.append(L, past, state)
        return self.out(swiglu(gate, y))

    def _parts(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Step sizes [..., C], rates, b and c [..., N] of x [..., C]."""
        parts = mx.split(self.split(x), self.cuts, axis=-1)
        dt, b, c = (norm(part) for norm, part in zip(self.norms, parts, strict=True)) if self.norms else parts
        return nn.softplus(self.step_sizes(dt)), self.rates, b, c
