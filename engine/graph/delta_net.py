"""The gated delta rule: linear attention whose state decays and forgets what a key held before it is written anew.

Letters: B rows, L length, D model dimension, K key heads, H value heads, E key dimension, V value dimension,
W width of the convolution, C its channels. Op order, and what is compiled, as in mlx-lm 0.32.2 on the CPU
(models/gated_delta.py, models/qwen3_next.py, models/qwen3_5.py, models/olmo_hybrid.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn

from engine.graph.conv import CausalConv
from engine.graph.delta_blocks import delta_blocks
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.batched import Padding
from engine.kv.spec import CacheSpec


def delta_step_plain(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    counts: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """One token: q, k [B, H, E], v [B, H, V], decay g [B, H] or [B, H, E], beta [B, H], state [B, H, V, E] ->
    (what q reads [B, H, V], the state after it). counts [B]: where it is false, the state stays."""
    before = state
    state = state * (g[..., None, None] if g.ndim == 2 else g[..., None, :])
    held = (state * k[..., None, :]).sum(axis=-1)  # [B, H, V]: what the state has under this key
    state = state + k[..., None, :] * ((v - held) * beta[..., None])[..., None]
    y = (state * q[..., None, :]).sum(axis=-1)
    if counts is not None:
        state = mx.where(counts[:, None, None, None], state, before)
    return y.astype(q.dtype), state


delta_step = mx.compile(delta_step_plain)


def delta_rule(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array | None,
    plain: bool = False,
    padding: Padding | None = None,
) -> tuple[mx.array, mx.array]:
    """Token by token: q, k [B, L, K, E], v [B, L, H, V], g [B, L, H] or [B, L, H, E], beta [B, L, H], state
    [B, H, V, E] in float32 (None: zeros) -> ([B, L, H, V], the state after them). plain: nothing is compiled."""
    (B, L, K, E), (H, V) = q.shape, v.shape[2:]
    if state is None:
        state = mx.zeros((B, H, V, E), mx.float32)
    if H > K:
        q, k = mx.repeat(q, H // K, axis=2), mx.repeat(k, H // K, axis=2)
    step, read = delta_step_plain if plain else delta_step, []
    for t in range(L):
        counts = () if padding is None else (padding.mask[:, t],)
        y, state = step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], state, *counts)
        read.append(y)
    return mx.stack(read, axis=1), state


def unit(q: mx.array, k: mx.array, eps: float = 1e-6) -> tuple[mx.array, mx.array]:
    """Queries and keys [..., E] of length 1, the queries times E^-0.5; eps counts in the sum of squares."""
    scale = q.shape[-1] ** -0.5
    q, k = mx.fast.rms_norm(q, None, eps * scale**2), mx.fast.rms_norm(k, None, eps * scale**2)
    return scale**2 * q, scale * k


@partial(mx.compile, shapeless=True)
def decay(a_log: mx.array, a: mx.array, dt_bias: mx.array) -> mx.array:
    """The factor in (0, 1), float32, by which a state decays; a_log, dt_bias [H] or what broadcasts to a's shape."""
    return mx.exp(-mx.exp(a_log.astype(mx.float32)) * nn.softplus(a + dt_bias))


@partial(mx.compile, shapeless=True)
def bounded_decay(a_log: mx.array, a: mx.array, dt_bias: mx.array, bound: float) -> mx.array:
    """The same with a floor: never below exp(bound), bound < 0."""
    return mx.exp(bound * mx.sigmoid(mx.exp(a_log.astype(mx.float32)) * (a.astype(mx.float32) + dt_bias)))


@partial(mx.compile, shapeless=True)
def gated_like(like: mx.array, gate: mx.array, x: mx.array) -> mx.array:
    """silu(gate) * x in float32, then in the dtype of `like`."""
    return (nn.silu(gate.astype(mx.float32)) * x.astype(mx.float32)).astype(like.dtype)


@dataclass(frozen=True, kw_only=True)
class DeltaSpec:
    """heads and dims: of keys and of values. width: of the convolution; eps: of the output's norm.

    maps "grouped": in_proj_qkvz and in_proj_ba, per key head its query, key, values and gates; "joined": in_proj_qkv
    and in_proj_z, _b, _a; "apart": q_proj, k_proj, v_proj, each with a convolution and a state of its own. negative:
    beta is in 0..2, so that what a key held may change its sign. plain: the recurrence is not compiled.
    """

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    width: int
    eps: float
    maps: Literal["grouped", "joined", "apart"]
    negative: bool = False
    plain: bool = False

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return (CacheSpec(kind="state", slots=4 if self.maps == "apart" else 2),)


class DeltaNet:
    """x [B, L, D] -> [B, L, D]. The state: the pasts of the convolutions, then the memory [B, H, V, E]."""

    def __init__(self, spec: DeltaSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec, self.training = spec, weights.training
        apart, H, keys, values = (
            spec.maps == "apart",
            spec.v_heads,
            spec.k_heads * spec.k_dim,
            spec.v_heads * spec.v_dim,
        )
        self.widths = (keys, keys, values)
        rows = {
            "grouped": {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * H},
            "joined": {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": H, "in_proj_a": H},
            "apart": {"q_proj": keys, "k_proj": keys, "v_proj": values, "g_proj": values, "b_proj": H, "a_proj": H},
        }[spec.maps]
        self.maps = [weights.linear(f"{path}.{name}", out, arch.dim, bias=False) for name, out in rows.items()]
        convolved = zip("qkv", self.widths, strict=True) if apart else [("", 2 * keys + values)]
        names = [(f"{path}.{letter}_conv1d" if letter else f"{path}.conv1d", C) for letter, C in convolved]
        self.convs = [CausalConv(weights, name, C, spec.width) for name, C in names]
        self.a_log, self.dt_bias = (weights.take(f"{path}.{name}", (H,)) for name in ("A_log", "dt_bias"))
        self.norm = weights.take(f"{path}.{'o_norm' if apart else 'norm'}.weight", (spec.v_dim,))
        self.out = weights.linear(f"{path}.{'o_proj' if apart else 'out_proj'}", arch.dim, values, bias=False)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, state, padding = self.spec, ctx.state(cache), ctx.padding(cache)
        *pasts, memory = state.slots
        mixed, z, b, a = self._project(x)
        made = [conv(part, past, padding) for conv, part, past in zip(self.convs, mixed, pasts, strict=True)]
        parts: Any = [nn.silu(y) for y, _ in made]
        if len(parts) == 1:
            parts = mx.split(parts[0], [self.widths[0], 2 * self.widths[0]], axis=-1)
        dims = (spec.k_dim, spec.k_dim, spec.v_dim)
        q, k, v = (p.reshape(*x.shape[:2], -1, dim) for p, dim in zip(parts, dims, strict=True))
        q, k = unit(q, k)  # [B, L, K, E]
        beta = mx.sigmoid(b) * 2.0 if spec.negative else mx.sigmoid(b)
        factors = decay(self.a_log, a, self.dt_bias)
        if self.training:
            y, memory = delta_blocks(q, k, v, factors, beta, memory)
        else:
            y, memory = delta_rule(q, k, v, factors, beta, memory, spec.plain, padding)
        state.append(x.shape[1], *(past for _, past in made), memory)
        y = gated_like(y, z.reshape(y.shape), mx.fast.rms_norm(y, self.norm, spec.eps))  # [B, L, H, V]
        return self.out(y.reshape(*x.shape[:2], -1))

    def _project(self, x: mx.array) -> tuple[list[mx.array], mx.array, mx.array, mx.array]:
        """What is convolved, the output's gate [B, L, H*V], and b and a [B, L, H]."""
        made = [linear(x) for linear in self.maps]
        if self.spec.maps != "grouped":
            *mixed, z, b, a = made
            return mixed, z, b, a
        (B, L, _), spec = x.shape, self.spec
        each = spec.v_heads // spec.k_heads
        qkvz, ba = (m.reshape(B, L, spec.k_heads, -1) for m in made)
        *qkv, z = mx.split(qkvz, [spec.k_dim, 2 * spec.k_dim, 2 * spec.k_dim + each * spec.v_dim], axis=-1)
        b, a = (part.reshape(B, L, -1) for part in mx.split(ba, [each], axis=-1))
        return [mx.concatenate([part.reshape(B, L, -1) for part in qkv], axis=-1)], z, b, a
