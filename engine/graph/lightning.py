"""Lightning attention: linear attention whose memory decays by one factor a head (mlx-lm 0.32.2,
models/bailing_moe_linear.py, bailing_hybrid.py).

Letters: B rows, L length, D model dimension, H heads, E head dimension, N blocks of C tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.spec import CacheSpec

BLOCK = 128


@dataclass(frozen=True, kw_only=True)
class LightningSpec:
    """attention: its heads, projections, norms and rope. The output is normalised in `groups`, then gated.

    factor: on the slopes by which the heads' memories decay. blocks: the memory [B, H, E, E] is in float32, and more
    than one token goes through it in blocks; else it is in the model's dtype, token by token. plain: token by token
    in either case, and nothing is compiled.
    """

    attention: AttentionSpec
    groups: int
    eps: float
    factor: float
    blocks: bool = False
    plain: bool = False

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return (CacheSpec(kind="state", slots=1, block=BLOCK if self.blocks else 1),)


def slopes(heads: int) -> mx.array:
    """2^(-8i/n) for n heads, a power of two; for other numbers every other one of the next power's fill up: [H]."""

    def powers(count: int) -> list[float]:
        return [2 ** (-(2 ** -(math.log2(count) - 3)) * (i + 1)) for i in range(count)]

    below = int(2 ** math.floor(math.log2(heads)))
    return mx.array(powers(below) + powers(2 * below)[::2][: heads - below], dtype=mx.float32)


def step_plain(q: mx.array, k: mx.array, v: mx.array, memory: mx.array, decay: mx.array) -> tuple[mx.array, mx.array]:
    """One token: q, k, v [B, H, 1, E], memory [B, H, E, E], decay [H, 1, 1] -> (what q reads, the memory after it)."""
    memory = memory * decay + k.transpose(0, 1, 3, 2) @ v
    return (q @ memory).astype(q.dtype), memory


step = mx.compile(step_plain)


def by_token(
    q: mx.array, k: mx.array, v: mx.array, slope: mx.array, memory: mx.array, plain: bool = True
) -> tuple[mx.array, mx.array]:
    """h_t = h_{t-1} exp(slope) + k_t^T v_t, y_t = q_t h_t: q, k, v [B, H, L, E], slope [H] -> (y, the last h)."""
    one: Callable[..., tuple[mx.array, mx.array]] = step_plain if plain else step
    read = []
    decay = mx.exp(slope)[:, None, None].astype(memory.dtype)
    for t in range(q.shape[2]):
        y, memory = one(*(x[:, :, t : t + 1] for x in (q, k, v)), memory, decay)
        read.append(y)
    return mx.concatenate(read, axis=2), memory


def by_block(
    q: mx.array, k: mx.array, v: mx.array, slope: mx.array, memory: mx.array, scale: float
) -> tuple[mx.array, mx.array]:
    """The same of scaled queries, up to rounding: a product inside each block, and the memory from block to block.

    Ranks are centred in a block, so that no power of the decay leaves float32.
    """
    dtype, (_, H, L, _) = q.dtype, q.shape
    C = min(L, BLOCK)
    N = -(-L // C)
    if N * C > L:
        q, k, v = (mx.pad(x, [(0, 0), (0, 0), (0, N * C - L), (0, 0)]) for x in (q, k, v))
    q, k, v = (mx.unflatten(x, 2, (N, C)) for x in (q, k, v))  # [B, H, N, C, E]
    v = v.astype(mx.float32)
    there = (mx.arange(N * C) < L).astype(mx.float32).reshape(1, 1, N, C)
    rank = mx.cumsum(there, axis=-1)  # of a token in its block, from 1; padding counts none
    total, slope_, centre = rank[..., -1:], slope.reshape(1, H, 1, 1), 0.5 * C
    power = slope_ * (rank - centre)
    q = q * (mx.exp(power) * scale * there)[..., None]
    k = k * (mx.exp(-power) * there)[..., None]
    # Above the diagonal powers overflow; tril selects, so that no infinity is multiplied.
    inside = mx.tril(q @ k.swapaxes(-1, -2)) @ v
    added = k.swapaxes(-1, -2) @ v  # [B, H, N, E, E]
    grown, kept = (mx.exp(slope_ * exponent)[..., None] for exponent in (total - centre, total))
    before = []
    for n in range(N):
        before.append(q[:, :, n] @ memory)
        memory = kept[:, :, n] * memory + added[:, :, n] * grown[:, :, n]
    earlier = mx.stack(before, axis=2) * mx.exp(slope * centre).reshape(1, H, 1, 1, 1)
    return mx.flatten((inside + earlier).astype(dtype), 2, 3)[:, :, :L], memory


class Lightning:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: LightningSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec, a = spec, spec.attention
        assert a.rope is not None
        self.rope, self.norms = build_rope(a.rope), None
        width = a.heads * a.head_dim
        self.qkv = weights.linear(f"{path}.{a.qkv}", 3 * width, arch.dim, a.qkv_bias)
        self.out = weights.linear(f"{path}.{a.o}", arch.dim, width, a.out_bias)
        self.gate = weights.linear(f"{path}.g_proj", width, arch.dim, bias=False)
        self.norm = weights.take(f"{path}.g_norm.weight", (width,))
        if a.qk_norm is not None and a.qk_norm.k is not None:
            self.norms = [build_norm(norm, a.head_dim, weights, path) for norm in (a.qk_norm.q, a.qk_norm.k)]
        self.slope = -slopes(a.heads) * spec.factor  # [H], the log of the decay

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, a, state = self.spec, self.spec.attention, ctx.state(cache)
        B, L, _ = x.shape
        qkv = mx.unflatten(self.qkv(x), -1, (3 * a.heads, a.head_dim))
        *qk, v = (y.transpose(0, 2, 1, 3) for y in mx.split(qkv, 3, axis=2))  # [B, H, L, E]
        if self.norms is not None:
            qk = [norm(y) for norm, y in zip(self.norms, qk, strict=True)]
        q, k = (self.rope(y, state.offset) for y in qk)
        memory = state.slots[0]
        if memory is None:
            memory = mx.zeros((B, a.heads, a.head_dim, a.head_dim), mx.float32 if spec.blocks else q.dtype)
        if spec.blocks and L > 1 and not spec.plain:
            y, memory = by_block(q, k, v, self.slope, memory, a.scale)
        else:
            y, memory = by_token(q * a.scale, k, v, self.slope, memory, spec.plain)
        state.append(L, memory)
        y = mx.unflatten(y.transpose(0, 2, 1, 3).reshape(B, L, -1), -1, (spec.groups, -1))
        y = self.norm * mx.flatten(mx.fast.rms_norm(y, None, spec.eps), -2)
        return self.out(y * mx.sigmoid(self.gate(x)))
