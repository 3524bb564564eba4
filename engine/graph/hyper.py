"""Hyper-connections: several residual streams, of which each mixer reads a mix, and into which it writes.

Letters: B rows, L length, C streams, D model dimension. The decoder's x is [B, L, C, D]; ctx.extras["read"] [B, L, C]
is the mix that the next layer's first mixer reads. Order of operations as in mlx-lm 0.32.2 (models/deepseek_v41.py)
on the CPU; on Metal it runs the normalisation below in one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.graph.forward import Forward, build
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, LayerSpec, StemSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class StreamsStemSpec:
    """A stem whose stream is repeated `streams` times; the first layer reads the first one."""

    stem: StemSpec
    streams: int


@dataclass(frozen=True, kw_only=True)
class StreamsOutletSpec:
    """The mix of the streams that would be read next."""


@dataclass(frozen=True, kw_only=True)
class HyperLayerSpec:
    """attention and mlp with norms before them; `steps` of normalisation of the matrix that mixes the streams."""

    layer: LayerSpec
    streams: int
    steps: int
    eps: float

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.layer.caches


def read(streams: mx.array, mix: mx.array) -> mx.array:
    """Streams [B, L, C, D] mixed by [B, L, C] -> [B, L, D]."""
    return mx.sum(mix[..., None] * streams.astype(mx.float32), axis=2).astype(streams.dtype)


def written(x: mx.array, streams: mx.array, write: mx.array, mix: mx.array) -> mx.array:
    """The streams [B, L, C, D] mixed by [B, L, C, C], and x [B, L, D] written to each by [B, L, C]."""
    mixed = mx.sum(mix[..., None] * streams[..., :, None, :], axis=2)
    return (write[..., None] * x[..., None, :] + mixed).astype(streams.dtype)


def doubly_stochastic(mix: mx.array, steps: int, eps: float) -> mx.array:
    """Columns, then rows and columns `steps` - 1 more times, over their sums: [..., C, C]."""
    mix = mix / (mx.sum(mix, axis=-2, keepdims=True) + eps)
    for _ in range(steps - 1):
        mix = mix / (mx.sum(mix, axis=-1, keepdims=True) + eps)
        mix = mix / (mx.sum(mix, axis=-2, keepdims=True) + eps)
    return mix


class StreamsStem:
    """Ids [B, L] -> the streams [B, L, C, D]."""

    def __init__(self, spec: StreamsStemSpec, arch: ArchSpec, weights: Weights) -> None:
        self.streams = spec.streams
        self.stem = build(spec.stem, arch, weights)
        self.table = self.stem.table

    def __call__(self, ctx: Forward) -> mx.array:
        x = self.stem(ctx)
        B, L, D = x.shape
        ctx.extras["read"] = mx.broadcast_to(mx.arange(self.streams) == 0, (B, L, self.streams)).astype(mx.float32)
        return mx.broadcast_to(x[:, :, None], (B, L, self.streams, D))


class StreamsOutlet:
    """The streams [B, L, C, D] -> [B, L, D]."""

    def __init__(self, spec: StreamsOutletSpec, arch: ArchSpec, weights: Weights, path: str) -> None: ...

    def __call__(self, x: mx.array, ctx: Forward) -> mx.array:
        return read(x, ctx.extras["read"])


class HyperConnection:
    """From the streams [B, L, C, D] to what is read next [B, L, C], what is written [B, L, C] and the mix [B, L, C, C],
    in float32."""

    def __init__(self, spec: HyperLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        assert arch.norm is not None
        C, self.spec, self.norm_eps = spec.streams, spec, arch.norm.eps
        self.map = weights.take(f"{path}.fn", (C * (2 + C), C * arch.dim))
        self.base = weights.take(f"{path}.base", (C * (2 + C),))
        scale = weights.take(f"{path}.scale", (3,))
        self.scale = scale[mx.array([0] * C + [1] * C + [2] * C * C)]

    def __call__(self, streams: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        C, eps = self.spec.streams, self.spec.eps
        flat = mx.fast.rms_norm(streams.flatten(2).astype(mx.float32), None, self.norm_eps)
        following, write, mix = mx.split((flat @ self.map.T) * self.scale + self.base, [C, 2 * C], axis=-1)
        mix = mx.softmax(mx.unflatten(mix, -1, (C, C)), axis=-1) + eps
        return mx.sigmoid(following) + eps, 2.0 * mx.sigmoid(write), doubly_stochastic(mix, self.spec.steps, eps)


class HyperLayer:
    """x [B, L, C, D] -> [B, L, C, D]."""

    def __init__(self, spec: HyperLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.layer = build(spec.layer, arch, weights, path)
        self.around_attention = HyperConnection(spec, arch, weights, f"{path}.attn_hc")
        self.around_mlp = HyperConnection(spec, arch, weights, f"{path}.ffn_hc")

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        inner: Any = self.layer
        following, write, mix = self.around_attention(x)
        attended = inner.attention(inner.pre_attn(read(x, ctx.extras["read"])), ctx, cache)
        x = written(attended, x, write, mix)
        ctx.extras["read"], write, mix = self.around_mlp(x)
        h = inner.pre_mlp(read(x, following))
        return written(inner.mlp(h, ctx, cache).astype(h.dtype), x, write, mix)
