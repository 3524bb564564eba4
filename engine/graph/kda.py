"""Kimi delta attention: the gated delta rule with a decay per channel of the keys, and a gated norm of what is read.

Letters: B rows, L length, D model dimension, H heads, E head dimension, W width of the convolutions. Order of
operations as in mlx-lm 0.32.2 (models/kimi_linear.py, bailing_moe_v3.py, kimi_k3.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from engine.graph.conv import CausalConv
from engine.graph.delta_net import bounded_decay, decay, delta_rule, unit
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class KdaSpec:
    """heads of `dim` values. width: of the convolutions; eps: of the output's norm.

    joined: queries, keys and values are one projection and one convolution. conv: name of a convolution, with {} for
    "q", "k", "v" or "qkv". decay, gate: keys of the maps to the decay and to the output's gate: two with a rank of
    `dim` between them, or one. bound: no decay is below exp(bound). float32: the sigmoids of beta and of the gate run
    in float32. plain: the recurrence is not compiled.
    """

    heads: int
    dim: int
    width: int
    eps: float
    joined: bool = False
    conv: str = "{}_conv.conv"
    decay: tuple[str, ...] = ("f_a_proj", "f_b_proj")
    gate: tuple[str, ...] = ("g_a_proj", "g_b_proj")
    bound: float | None = None
    float32: bool = False
    plain: bool = False

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """One state: the past of each convolution, then the memory."""
        return (CacheSpec(kind="state", slots=2 if self.joined else 4),)


class Kda:
    """x [B, L, D] -> [B, L, D]. The memory is [B, H, E, E] in float32."""

    def __init__(self, spec: KdaSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        H, E, width = spec.heads, spec.dim, spec.heads * spec.dim

        def maps(keys: tuple[str, ...]) -> nn.Sequential:
            """One map to H*E values, or two with E between them."""
            ends = [arch.dim, *[E] * (len(keys) - 1), width]
            pairs = zip(keys, ends[1:], ends, strict=False)
            return nn.Sequential(*(weights.linear(f"{path}.{key}", out, into, bias=False) for key, out, into in pairs))

        names = {"qkv": 3 * width} if spec.joined else dict.fromkeys("qkv", width)
        self.inputs = [weights.linear(f"{path}.{n}_proj", out, arch.dim, bias=False) for n, out in names.items()]
        self.convs = [CausalConv(weights, f"{path}.{spec.conv.format(n)}", out, spec.width) for n, out in names.items()]
        self.decay, self.gate = maps(spec.decay), maps(spec.gate)
        self.beta = weights.linear(f"{path}.b_proj", H, arch.dim, bias=False)
        self.a_log = weights.take(f"{path}.A_log", (H,)).reshape(H, 1)
        self.dt_bias = weights.take(f"{path}.dt_bias", (width,)).reshape(H, E)
        self.norm = weights.take(f"{path}.o_norm.weight", (E,))
        self.out = weights.linear(f"{path}.o_proj", arch.dim, width, bias=False)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, state, padding = self.spec, ctx.state(cache), ctx.padding(cache)
        heads = (*x.shape[:2], spec.heads, spec.dim)
        *pasts, memory = state.slots
        made = [conv(into(x), past, padding) for conv, into, past in zip(self.convs, self.inputs, pasts, strict=True)]
        parts = [nn.silu(y) for y, _ in made]
        if spec.joined:
            parts = list(mx.split(parts[0], 3, axis=-1))
        q, k, v = (part.reshape(heads) for part in parts)
        q, k = unit(q, k)  # [B, L, H, E]
        a, beta, gate = self.decay(x).reshape(heads), self.beta(x), self.gate(x).reshape(heads)
        if spec.bound is None:
            g = decay(self.a_log, a, self.dt_bias)
        else:
            g = bounded_decay(self.a_log, a, self.dt_bias, spec.bound)
        y, memory = delta_rule(q, k, v, g, self._sigmoid(beta), memory, spec.plain, padding)
        state.append(x.shape[1], *(past for _, past in made), memory)
        y = mx.fast.rms_norm(y, self.norm, spec.eps) * self._sigmoid(gate).astype(y.dtype)
        return self.out(y.reshape(*x.shape[:2], -1))

    def _sigmoid(self, logits: mx.array) -> mx.array:
        return mx.sigmoid(logits.astype(mx.float32) if self.spec.float32 else logits)
