"""The two mixers of an RWKV-7 layer, which share a state of three arrays (mlx-lm 0.32.2, models/rwkv7.py).

Letters: B rows, L length, D model dimension, H heads, E head dimension, M hidden dimension, R a low rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec

DECAY = -0.606531  # -exp(-0.5), the log of the fastest decay
NORM_EPS = 64e-5


@dataclass(frozen=True, kw_only=True)
class TimeMixSpec:
    """ranks: of the maps to decay, learning rate, gate and values (none in the first layer). plain: nothing of the
    recurrence is compiled. The state: its last token [B, 1, D], the memory [B, H, E, E], the other mixer's token."""

    heads: int
    head_dim: int
    ranks: tuple[int, int, int, int | None]
    plain: bool = False
    caches: tuple[CacheSpec, ...] = (CacheSpec(kind="state", slots=3),)


@dataclass(frozen=True, kw_only=True)
class ChannelMixSpec:
    """An MLP of squared relu on a mix of each token with the one before, whose last is the state's third array."""

    hidden: int


@partial(mx.compile, shapeless=True)
def _towards(x: mx.array, difference: mx.array, share: mx.array) -> mx.array:
    return x + difference * share


@partial(mx.compile, shapeless=True)
def _unit(x: mx.array) -> mx.array:
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), 1e-7)


def wkv7_step_plain(
    r: mx.array, w: mx.array, k: mx.array, v: mx.array, a: mx.array, b: mx.array, memory: mx.array
) -> tuple[mx.array, mx.array]:
    """One token: what r reads [B, H, E, 1], and the memory [B, H, E, E] after it decayed by w, had what it held under
    a written back under b, and took v under k; all [B, H, E]."""
    moved = (memory @ a[..., None]) @ b[..., None, :]
    memory = memory * w[:, :, None, :] + v[..., None] @ k[..., None, :] + moved
    return memory @ r[..., None], memory


wkv7_step = mx.compile(wkv7_step_plain)


def wkv7(inputs: tuple[mx.array, ...], memory: mx.array | None, plain: bool = False) -> tuple[mx.array, mx.array]:
    """Token by token: r, w, k, v, a, b [B, L, H, E] -> ([B, L, H, E], the memory after them)."""
    B, L, H, E = inputs[0].shape
    if memory is None:
        memory = mx.zeros((B, H, E, E), inputs[0].dtype)
    step: Callable[..., tuple[mx.array, mx.array]] = wkv7_step_plain if plain else wkv7_step
    read = []
    for t in range(L):
        y, memory = step(*(x[:, t] for x in inputs), memory)
        read.append(y)
    return mx.stack(read, axis=1).astype(inputs[0].dtype).squeeze(-1), memory


def _shifted(x: mx.array, last: mx.array | None) -> mx.array:
    """The token before each of x [B, L, D], less that token; before the first one `last` [B, 1, D] (None: 0)."""
    last = mx.zeros_like(x[:, :1]) if last is None else last
    return mx.concatenate([last, x[:, :-1]], axis=1) - x


class LowRank:
    """D -> R -> D, with `act` between them."""

    def __init__(
        self, weights: Weights, path: str, dim: int, rank: int, act: Callable[[mx.array], mx.array] | None, bias: bool
    ) -> None:
        self.act = act
        self.down = weights.linear(f"{path}.lora.0", rank, dim, bias=False)
        self.up = weights.linear(f"{path}.lora.2", dim, rank, bias)

    def __call__(self, x: mx.array) -> mx.array:
        low = self.down(x)
        return self.up(low if self.act is None else self.act(low))


class TimeMix:
    """x [B, L, D] -> [B, L, D]. The first layer's values go to the later ones by ctx.extras."""

    def __init__(self, spec: TimeMixSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec, D = spec, arch.dim
        decay, rate, gate, values = spec.ranks

        def per_head(key: str) -> mx.array:
            return weights.take(f"{path}.{key}", (spec.heads, spec.head_dim))

        self.shares = [weights.take(f"{path}.x_{name}", (1, 1, D)) for name in "rwkvag"]
        self.r, self.k, self.v, self.out = (weights.linear(f"{path}.{n}_proj", D, D, bias=False) for n in "rkvo")
        self.decay = LowRank(weights, f"{path}.w_lora", D, decay, mx.tanh, bias=True)
        self.rate = LowRank(weights, f"{path}.a_lora", D, rate, None, bias=True)
        self.gate = LowRank(weights, f"{path}.g_lora", D, gate, mx.sigmoid, bias=False)
        self.values = None if values is None else LowRank(weights, f"{path}.v_lora", D, values, None, bias=True)
        self.k_k, self.k_a, self.r_k = per_head("k_k"), per_head("k_a"), per_head("r_k")
        self.norm, self.norm_bias = per_head("g_norm.weight"), per_head("g_norm.bias")

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, state = self.spec, ctx.state(cache)
        last, memory, other = state.slots

        def split(y: mx.array) -> mx.array:
            return mx.unflatten(y, -1, (spec.heads, spec.head_dim))  # [B, L, H, E]

        before = _shifted(x, last)
        xr, xw, xk, xv, xa, xg = (_towards(x, before, share) for share in self.shares)
        r, k, v = split(self.r(xr)), split(self.k(xk)), split(self.v(xv))
        rate, gate = split(mx.sigmoid(self.rate(xa))), self.gate(xg)
        if self.values is None:
            ctx.extras["first_values"] = v
        else:
            v = _towards(v, ctx.extras["first_values"] - v, split(mx.sigmoid(self.values(xv))))
        w = mx.exp(DECAY * mx.sigmoid(split(self.decay(xw))).astype(mx.float32)).astype(r.dtype)
        held = _unit(k * self.k_k)
        k = k * (1 + (rate - 1) * self.k_a)
        y, memory = wkv7((r, w, k, v, -held, held * rate), memory, spec.plain)
        state.append(x.shape[1], mx.contiguous(x[:, -1:]), memory, other)
        y = self.norm * mx.fast.layer_norm(y, None, None, NORM_EPS) + self.norm_bias
        y = y + (r * k * self.r_k).sum(axis=-1, keepdims=True) * v
        return self.out(y.reshape(x.shape) * gate)


class ChannelMix:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: ChannelMixSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.share = weights.take(f"{path}.x_k", (arch.dim,))
        self.up = weights.linear(f"{path}.key", spec.hidden, arch.dim, bias=False)
        self.down = weights.linear(f"{path}.value", arch.dim, spec.hidden, bias=False)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        state = ctx.state(cache)
        *kept, last = state.slots
        mixed = _towards(x, _shifted(x, last), self.share)
        state.append(0, *kept, mx.contiguous(x[:, -1:]))
        return self.down(nn.relu2(self.up(mixed)))
