"""Attention whose projections and cache are the usual ones, and which attends in a way of its own.

Letters: B rows, H query heads, K key/value heads, L query length, S keys, E head dimension, D model dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, AttentionSpec
from engine.kv.base import one
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class BlockSparseSpec:
    """Keys are seen by blocks of `size`: the `local` nearest ones, and every `stride`-th further back, shifted from
    head to head."""

    attention: AttentionSpec
    size: int
    local: int
    stride: int

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        only_native = "attends blocks of keys"
        return tuple(replace(cache, only_native=only_native, block=None) for cache in self.attention.caches)


class BlockSparse:
    """x [B, L, D] -> [B, L, D], with mlx-lm's bits (0.32.2, models/phi3small.py).

    Its causal mask is added as 0 and 1, so several tokens at once see the future of their block; one token at a time
    sees what it should. Register: "block-sparse-prefill".
    """

    def __init__(self, spec: BlockSparseSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.attention = Attention(spec.attention, arch, weights, path)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        queries, view = self.attention.append(x, ctx, cache)
        B, H, L, _ = queries.shape
        keys, values = view.dense()  # `attend` would hide the future, which mlx-lm's mask does not
        K, S = keys.shape[1:3]
        queries = (self.spec.attention.scale * queries).reshape(B, K, H // K, L, -1)
        scores = queries @ mx.expand_dims(keys, 2).swapaxes(-1, -2)  # [B, K, H/K, L, S]
        if L > 1:
            scores = scores + ctx.masks.causal(L, one(view.offset))
        seen = visible(self.spec, H, L, S).reshape(K, H // K, L, S)
        scores = scores + mx.where(seen, mx.array(0, scores.dtype), mx.array(-float("inf"), scores.dtype))
        scores = mx.softmax(scores, axis=-1, precise=True)
        return self.attention.output((scores @ mx.expand_dims(values, 2)).reshape(B, H, L, -1), x)


def visible(spec: BlockSparseSpec, heads: int, length: int, keys: int) -> mx.array:
    """Boolean [H, L, S]: the keys whose block each query's block sees; queries are counted from the last block's end,
    as mlx-lm does, full or not."""
    end = -(-keys // spec.size) * spec.size
    key = mx.arange(keys) // spec.size
    query = (mx.arange(end - length, end) // spec.size)[:, None]
    far = (key + mx.arange(1, heads + 1)[:, None, None]) % spec.stride == 0  # [H, 1, S]
    return (query >= key) & ((query - key < spec.local) | far)


@dataclass(frozen=True, kw_only=True)
class CyclicSpec:
    """Attention with its query heads dealt out to the key/value heads in turn: head h reads h modulo their number
    (plamo)."""

    attention: AttentionSpec

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.attention.caches


def regrouped(x: mx.array, groups: int) -> mx.array:
    """Heads of x [B, H, L, E], written in `groups` rows, are read by columns."""
    B, H, L, E = x.shape
    return x.reshape(B, groups, H // groups, L, E).swapaxes(1, 2).reshape(B, H, L, E)


class Cyclic:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: CyclicSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec.attention
        self.attention = Attention(spec.attention, arch, weights, path)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec = self.spec
        queries, view = self.attention.append(x, ctx, cache)  # [B, H, L, E], head r * K + k reads k
        out = view.attend(regrouped(queries, spec.heads // spec.kv_heads), spec.scale, ctx.masks)
        return self.attention.output(regrouped(out, spec.kv_heads), x)


@dataclass(frozen=True, kw_only=True)
class TwoScopesSpec:
    """Two scopes mixed by a gate on each query: all keys of an earlier pass, and a window of its own.

    local: the projections and the window; reads: the other scope's cache; gate: key of its weight and bias.
    """

    local: AttentionSpec
    reads: int
    gate: str

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.local.caches


@partial(mx.compile, shapeless=True)
def _gate(queries: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
    """Queries [B, H, L, E], weight [H, E], bias [H] -> [B, H, L, 1]."""
    logits = queries @ weight[:, None, :].swapaxes(-1, -2)
    return mx.sigmoid(logits + bias[..., None, None])


@partial(mx.compile, shapeless=True)
def _mix(gate: mx.array, there: mx.array, here: mx.array) -> mx.array:
    return gate * there + (1 - gate) * here


class TwoScopes:
    """x [B, L, D] -> [B, L, D]; compiled as in mlx-lm 0.32.2 (models/iquestloopcoder.py)."""

    def __init__(self, spec: TwoScopesSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.local = Attention(spec.local, arch, weights, path)
        self.weight = weights.take(f"{spec.gate}.weight", (spec.local.heads, spec.local.head_dim))
        self.bias = weights.take(f"{spec.gate}.bias", (spec.local.heads,))

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        queries, view = self.local.append(x, ctx, cache)
        scale = self.spec.local.scale
        there = ctx.views[self.spec.reads].attend(queries, scale, ctx.masks)
        here = view.attend(queries, scale, ctx.masks)
        return self.local.output(_mix(_gate(queries, self.weight, self.bias), there, here), x)
