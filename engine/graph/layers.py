"""The two mixers of a decoder layer, and the layer.

Letters: B rows, L length, D model dimension, H query heads, K key/value heads, E head dimension, M hidden dimension.
"""

from __future__ import annotations

from functools import partial

import mlx.core as mx
import mlx.nn as nn

from engine.graph.params import Weights
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, AttentionSpec, LayerSpec, MlpSpec
from engine.kv.base import LayerKV


class Norm:
    """RMS norm. `offset` is folded into the weight once."""

    def __init__(self, weight: mx.array, eps: float, offset: float) -> None:
        self.weight, self.eps = (offset + weight if offset else weight), eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self.weight, self.eps)


# Compiled as mlx-lm compiles it (models/activations.py): fusion may round differently from separate operations.
@partial(mx.compile, shapeless=True)
def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


def geglu(gate: mx.array, up: mx.array) -> mx.array:
    return nn.gelu_approx(gate) * up


_GATED = {"silu": swiglu, "gelu_approx": geglu}


class Attention:
    """Grouped-query attention over a KV scheme."""

    def __init__(self, spec: AttentionSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.rope = build_rope(spec.rope)
        q_dim, kv_dim = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.q = weights.linear(f"{path}.q_proj", q_dim, arch.dim, spec.qkv_bias)
        self.k = weights.linear(f"{path}.k_proj", kv_dim, arch.dim, spec.qkv_bias)
        self.v = weights.linear(f"{path}.v_proj", kv_dim, arch.dim, spec.qkv_bias)
        self.o = weights.linear(f"{path}.o_proj", arch.dim, q_dim, spec.out_bias)
        self.q_norm = self.k_norm = None
        if spec.qk_norm:
            q_width, k_width = (spec.head_dim, spec.head_dim) if spec.qk_norm == "head" else (q_dim, kv_dim)
            self.q_norm = Norm(weights.take(f"{path}.q_norm.weight", (q_width,)), arch.norm_eps, arch.norm_offset)
            self.k_norm = Norm(weights.take(f"{path}.k_norm.weight", (k_width,)), arch.norm_eps, arch.norm_offset)

    def __call__(self, x: mx.array, kv: LayerKV) -> mx.array:
        spec = self.spec
        B, L, _ = x.shape
        queries, keys, values = self.q(x), self.k(x), self.v(x)  # [B, L, H*E], [B, L, K*E] twice
        queries = _split(queries, spec.heads, self.q_norm, spec.qk_norm)
        keys = _split(keys, spec.kv_heads, self.k_norm, spec.qk_norm)
        values = _split(values, spec.kv_heads, None, None)
        queries = self.rope(queries, kv.offset)
        keys = self.rope(keys, kv.offset)
        out = kv.append(keys, values).attend(queries, spec.scale, softcap=spec.softcap)  # [B, H, L, E]
        return self.o(out.transpose(0, 2, 1, 3).reshape(B, L, -1))  # [B, L, D]


def _split(x: mx.array, heads: int, norm: Norm | None, where: str | None) -> mx.array:
    """[B, L, heads*E] -> [B, heads, L, E], normalised before the split ("flat") or per head ("head")."""
    B, L, _ = x.shape
    if norm is not None and where == "flat":
        x = norm(x)
    x = x.reshape(B, L, heads, -1)  # [B, L, heads, E]
    if norm is not None and where == "head":
        x = norm(x)
    return x.transpose(0, 2, 1, 3)


class Mlp:
    """Gated MLP."""

    def __init__(self, spec: MlpSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.gated = _GATED[spec.activation]
        self.fused = None
        if spec.fused:
            self.fused = weights.linear(f"{path}.gate_up_proj", 2 * spec.hidden, arch.dim, spec.bias)
        else:
            self.gate = weights.linear(f"{path}.gate_proj", spec.hidden, arch.dim, spec.bias)
            self.up = weights.linear(f"{path}.up_proj", spec.hidden, arch.dim, spec.bias)
        self.down = weights.linear(f"{path}.down_proj", arch.dim, spec.hidden, spec.bias)

    def __call__(self, x: mx.array) -> mx.array:
        if self.fused is not None:
            gate, up = mx.split(self.fused(x), 2, axis=-1)  # [B, L, M] twice
        else:
            gate, up = self.gate(x), self.up(x)
        return self.down(self.gated(gate, up))


class Layer:
    """Residual attention and residual MLP, each with the norms that the spec names."""

    def __init__(self, spec: LayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        def norm(key: str | None) -> Norm | None:
            if key is None:
                return None
            return Norm(weights.take(f"{path}.{key}.weight", (arch.dim,)), arch.norm_eps, arch.norm_offset)

        self.attention = Attention(spec.attention, arch, weights, f"{path}.self_attn")
        self.mlp = Mlp(spec.mlp, arch, weights, f"{path}.mlp")
        self.pre_attn, self.post_attn = norm(spec.norms.pre_attn), norm(spec.norms.post_attn)
        self.pre_mlp, self.post_mlp = norm(spec.norms.pre_mlp), norm(spec.norms.post_mlp)

    def __call__(self, x: mx.array, kv: LayerKV) -> mx.array:
        r = self.attention(self.pre_attn(x) if self.pre_attn else x, kv)
        x = x + (self.post_attn(r) if self.post_attn else r)
        r = self.mlp(self.pre_mlp(x) if self.pre_mlp else x)
        return x + (self.post_mlp(r) if self.post_mlp else r)
