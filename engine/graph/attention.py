"""Grouped-query attention over a KV scheme, by `AttentionSpec`.

Letters: B rows, L length, D model dimension, H query heads, K key/value heads, E head dimension.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward
from engine.graph.norms import Norm, build_norm
from engine.graph.params import LinearMap, Weights
from engine.graph.rope import Angles, build_rope
from engine.graph.spec import ArchSpec, AttentionSpec, GateSpec, NormSpec, QueryScale
from engine.kv.base import KVView, Offset


@partial(mx.compile, shapeless=True)
def rounded_8bit(x: mx.array, scale: mx.array) -> mx.array:
    """x as 8-bit integers times `scale`, in float32 and back (mlx-lm 0.32.2, models/afm7.py)."""
    steps = mx.clip((x.astype(mx.float32) / scale).round(), -128, 127)
    return (steps * scale).astype(x.dtype)


class Heads(NamedTuple):
    """Of L tokens: queries [B, H, L, E]; keys and values [B, K, L, E], None where another layer's are read; the gate
    [B, L, H*E] where it is projected with the queries."""

    queries: mx.array
    keys: mx.array | None
    values: mx.array | None
    gate: mx.array | None


class Attention:
    def __init__(self, spec: AttentionSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.v_dim = spec.v_dim or spec.head_dim
        self.rope = build_rope(spec.rope) if spec.rope else None
        q_dim, k_dim, v_dim = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * self.v_dim

        def linear(key: str, out: int, bias: bool) -> LinearMap:
            return weights.linear(weights.join(path, key), out, arch.dim, bias)

        def norm(norm_spec: NormSpec | None, dim: int, heads: int = 1) -> Norm | None:
            return None if norm_spec is None else build_norm(norm_spec, dim, weights, path, heads)

        if spec.qkv is not None:
            self.qkv = linear(spec.qkv, q_dim + k_dim + v_dim, spec.qkv_bias)
        else:
            gated_queries = spec.gate is not None and spec.gate.key is None
            self.q = linear(spec.q, q_dim * (2 if gated_queries else 1), spec.qkv_bias)
            if spec.reads is None and spec.projection != "taken":
                self.k = linear(spec.k, k_dim, spec.qkv_bias)
                self.v = linear(spec.v, v_dim, spec.qkv_bias) if spec.values == "own" else None
        # What `engine.graph.fused` may join: query, key and value of the same input.
        own = spec.qkv is None and spec.reads is None and spec.projection is None and spec.values == "own"
        plain = own and (spec.gate is None or spec.gate.key is not None)
        self.apart = [each for each in (self.q, self.k, self.v) if each is not None] if plain else []
        self.joined: LinearMap | None = None
        self.o = weights.linear(weights.join(path, spec.o), arch.dim, spec.heads * self.v_dim, spec.out_bias)
        self.q_norm = self.k_norm = None
        qk = spec.qk_norm
        if qk is not None:
            flat = qk.where == "flat"
            self.q_norm = norm(qk.q, q_dim if flat else spec.head_dim, spec.heads)
            if spec.reads is None:
                self.k_norm = norm(qk.k, k_dim if flat else spec.head_dim, spec.kv_heads)
        self.v_norm = norm(spec.v_norm, self.v_dim) if spec.reads is None else None
        self.out_norm = norm(spec.out_norm, spec.heads * self.v_dim)
        self.sinks = weights.take(weights.join(path, spec.sinks), (spec.heads,)) if spec.sinks else None
        self.q_gain = weights.take(weights.join(path, spec.q_gain), (spec.heads,)) if spec.q_gain else None
        self.int8 = [weights.take(weights.join(path, key), ()) for key in spec.int8] if spec.int8 else None
        self.gate = None
        if spec.gate is not None and spec.gate.key is not None:
            self.gate = linear(
                spec.gate.key, spec.heads if spec.gate.per_head else spec.heads * self.v_dim, spec.gate.bias
            )

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        """x [B, L, D] -> [B, L, D]; appends to ctx.caches[cache], or attends what an earlier layer appended."""
        heads = self.heads(x, self._offset(ctx, cache), ctx)
        return self.output(self.attend(heads.queries, self.store(heads, ctx, cache), ctx), x, heads.gate)

    def append(self, x: mx.array, ctx: Forward, cache: int) -> tuple[mx.array, KVView]:
        """The queries [B, H, L, E] of x, and the view that holds the keys and values of x, or another layer's."""
        heads = self.heads(x, self._offset(ctx, cache), ctx)
        return heads.queries, self.store(heads, ctx, cache)

    def heads(self, x: mx.array, at: Offset | Angles, ctx: Forward | None = None) -> Heads:
        """What x [B, L, D] asks and gives, at its place. ctx: of specs that are not `lone`."""
        spec = self.spec
        B, L, _ = x.shape
        queries, keys, values, gate = self._project(x, ctx)  # [B, L, H*E], [B, L, K*E], [B, L, K*E]
        queries = self._split(queries, spec.heads, spec.head_dim, self.q_norm)
        if spec.query_factor is not None:
            queries = queries * spec.query_factor
        queries = self._rotated(queries, self.q_norm, at)
        if self.q_gain is not None:
            queries = queries * self.q_gain.astype(queries.dtype).reshape(1, -1, 1, 1)
        if spec.query_scale is not None:
            assert isinstance(at, int)
            assert ctx is not None
            queries = scaled(queries, spec.query_scale, at, ctx.embedded.dtype)
        if keys is None or values is None:
            return Heads(queries, None, None, gate)
        keys = self._rotated(self._split(keys, spec.kv_heads, spec.head_dim, self.k_norm), self.k_norm, at)
        if self.v_norm is None:
            values = by_heads(values, spec.kv_heads, self.v_dim)
        else:
            values = self.v_norm(values.reshape(B, L, spec.kv_heads, self.v_dim)).transpose(0, 2, 1, 3)
        if spec.value_scale is not None:
            values = values * spec.value_scale
        if self.int8 is not None:
            keys, values = rounded_8bit(keys, self.int8[0]), rounded_8bit(values, self.int8[1])
        return Heads(queries, keys, values, gate)

    def store(self, heads: Heads, ctx: Forward, cache: int) -> KVView:
        """The view that holds these keys and values, behind those of ctx.caches[cache]; another layer's without."""
        if self.spec.reads is not None:
            return ctx.views[self.spec.reads]
        assert heads.keys is not None
        assert heads.values is not None
        view = ctx.views[cache] = ctx.kv(cache).append(heads.keys, heads.values)
        return view

    def attend(self, queries: mx.array, view: KVView, ctx: Forward) -> mx.array:
        """What queries [B, H, L, E] find in a view: [B, H, L, E]."""
        spec, back = self.spec, queries.dtype
        if spec.float32 == "always" or (spec.float32 == "float16" and back == mx.float16):
            queries = queries.astype(mx.float32)
        out = view.attend(queries, spec.scale, ctx.masks, softcap=spec.softcap, sinks=self.sinks)
        return out.astype(back) if spec.float32 else out

    def _offset(self, ctx: Forward, cache: int) -> Offset:
        return ctx.caches[cache].offset if self.spec.reads is None else ctx.views[self.spec.reads].offset

    def output(self, out: mx.array, x: mx.array, gate: mx.array | None = None) -> mx.array:
        """What was attended [B, H, L, E], gated by x or by `gate`, through the last projection: [B, L, D]."""
        if gate is None and self.gate is not None:
            gate = self.gate(x)
        if x.shape[1] > 1 or gate is not None:  # one token is in this order already
            out = out.transpose(0, 2, 1, 3)  # [B, L, H, E]
        if gate is not None and self.spec.gate is not None:
            out = gated(out, gate, self.spec.gate)
        out = out.reshape(*x.shape[:2], -1)
        return self.o(self.out_norm(out) if self.out_norm else out)

    def _project(
        self, x: mx.array, ctx: Forward | None
    ) -> tuple[mx.array, mx.array | None, mx.array | None, mx.array | None]:
        """Queries, keys and values of x, and the gate where it comes with the queries; keys and values are None where
        another layer's are read."""
        spec, gate = self.spec, None
        if self.joined is not None:
            q_end = spec.heads * spec.head_dim
            queries, keys, values = mx.split(self.joined(x), [q_end, q_end + spec.kv_heads * spec.head_dim], axis=-1)
            return queries, keys, values, None
        if spec.qkv is None:
            queries = self.q(x)
            if spec.gate is not None and spec.gate.key is None:
                queries, gate = mx.split(queries.reshape(*x.shape[:2], spec.heads, -1), 2, axis=-1)
                gate = gate.reshape(*x.shape[:2], -1)
            if spec.reads is not None:
                return queries, None, None, gate
            if spec.projection == "taken" and ctx is not None and ctx.projected is not None:
                return queries, *ctx.projected, gate
            keys = self.k(x)
            values = keys if self.v is None else self.v(x)
            if spec.projection == "given":
                assert ctx is not None
                ctx.projected = keys, values
            return queries, keys, values, gate
        qkv = self.qkv(x)
        if spec.clip is not None:
            qkv = mx.clip(qkv, a_min=-spec.clip, a_max=spec.clip)
        if spec.packed == "blocks":
            q_end = spec.heads * spec.head_dim
            queries, keys, values = mx.split(qkv, [q_end, q_end + spec.kv_heads * spec.head_dim], axis=-1)
            return queries, keys, values, None
        B, L, _ = x.shape
        qkv = qkv.reshape(B, L, spec.kv_heads, -1, spec.head_dim)  # [B, L, K, H/K + 2, E]
        return qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :], None

    def _split(self, x: mx.array, heads: int, dim: int, norm: Norm | None) -> mx.array:
        """[B, L, heads*E] -> [B, heads, L, E], normalised flat or per head."""
        B, L = x.shape[:2]
        where = self.spec.qk_norm.where if self.spec.qk_norm else None
        if norm is not None and where == "flat":
            x = norm(x)
        if norm is None or where != "head":
            return by_heads(x, heads, dim)
        return norm(x.reshape(B, L, heads, dim)).transpose(0, 2, 1, 3)

    def _rotated(self, x: mx.array, norm: Norm | None, at: Offset | Angles) -> mx.array:
        if self.rope is not None:
            x = self.rope(x, at)
        if norm is not None and self.spec.qk_norm is not None and self.spec.qk_norm.where == "rotated":
            x = norm(x)
        return x


def by_heads(x: mx.array, heads: int, dim: int) -> mx.array:
    """x [B, L, heads*E], or those values in more axes, as [B, heads, L, E]. One token is in that order already."""
    B, L = x.shape[:2]
    return x.reshape(B, heads, 1, dim) if L == 1 else x.reshape(B, L, heads, dim).transpose(0, 2, 1, 3)


def scaled(queries: mx.array, scale: QueryScale, offset: int, dtype: mx.Dtype) -> mx.array:
    """Queries [B, H, L, E] times a factor that grows with position (op order of ministral3 and of llama4)."""
    length = queries.shape[2]
    if scale.cast == "scale":
        steps = mx.floor((mx.arange(length) + offset) / scale.length)
        return queries * (1 + scale.beta * mx.log(1 + steps))[:, None].astype(dtype)
    steps = mx.floor(mx.arange(offset + scale.shift, offset + length + scale.shift) / scale.length)
    return (queries * (mx.log(steps + 1.0) * scale.beta + 1.0)[:, None]).astype(queries.dtype)


def gated(out: mx.array, gate: mx.array, spec: GateSpec) -> mx.array:
    """out [B, L, H, E] times fn(gate), gate [B, L, H] or [B, L, H*E]."""
    fn = mx.sigmoid if spec.fn == "sigmoid" else nn.softplus
    gate = fn(gate.astype(mx.float32)).astype(out.dtype) if spec.float32 else fn(gate)
    if spec.per_head:
        return out * gate[..., None]
    return out.reshape(gate.shape) * gate
