"""Residuals over blocks of layers: what a mixer reads is a weighted mean of the embedding, of the sum that each earlier
block of layers added to nothing, and of the sum so far of its own block.

Letters: B rows, L length, D model dimension, N sums kept. Order of operations, and what is compiled, as in mlx-lm
0.32.2 (models/kimi_k3.py) on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward, build
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, LayerSpec
from engine.kv.spec import CacheSpec

SUMS, INVERSE_RMS = "block_sums", "block_inverse_rms"  # in the forward's extras: [N, B, L, D] and [N, B, L]


@dataclass(frozen=True, kw_only=True)
class BlockMeanSpec:
    """The weighted mean, under `<key>_proj` and `<key>_norm`; eps: of the norm. Also an outlet of the decoder."""

    key: str
    eps: float


@dataclass(frozen=True, kw_only=True)
class BlockLayerSpec:
    """A layer each of whose mixers reads a mean. opens: it is the first of a block, whose sum begins with it."""

    layer: LayerSpec
    opens: bool
    eps: float

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.layer.caches


@mx.compile
def block_mean(sums: mx.array, inverse_rms: mx.array, x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """The mean of `sums` [N, B, L, D] and x [B, L, D], each weighted by the softmax of its RMS norm times `weight`."""
    wide = x.astype(mx.float32)
    own = (wide @ weight) * mx.rsqrt((wide * wide).mean(axis=-1) + eps)  # [B, L]
    logits = mx.concatenate([(sums.astype(mx.float32) @ weight) * inverse_rms, own[None]])  # [N + 1, B, L]
    shares = mx.softmax(logits, axis=0, precise=True)
    return ((shares[:-1, ..., None] * sums).sum(axis=0) + shares[-1, ..., None] * x).astype(x.dtype)


def keep_sum(x: mx.array, eps: float, ctx: Forward) -> None:
    """Append a finished block's sum [B, L, D], and 1 / its rms, to those of the forward."""
    wide = x.astype(mx.float32)
    for key, new in ((SUMS, x), (INVERSE_RMS, mx.rsqrt((wide * wide).mean(axis=-1) + eps))):
        old = ctx.extras.get(key)
        ctx.extras[key] = new[None] if old is None else mx.concatenate([old, new[None]])


class BlockMean:
    """x [B, L, D], the sum of the present block -> the mean [B, L, D]; x itself before any sum is kept."""

    def __init__(self, spec: BlockMeanSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.eps = spec.eps
        norm = weights.take(weights.join(path, f"{spec.key}_norm.weight"), (arch.dim,))
        scores = weights.take(weights.join(path, f"{spec.key}_proj.weight"), (1, arch.dim))
        self.weight = norm.astype(mx.float32) * scores.reshape(-1)  # one matrix: the norm's rms comes after it

    def __call__(self, x: mx.array, ctx: Forward) -> mx.array:
        if SUMS not in ctx.extras:
            return x
        return block_mean(ctx.extras[SUMS], ctx.extras[INVERSE_RMS], x, self.weight, self.eps)


class BlockLayer:
    """The sum of the present block [B, L, D] -> the same with both mixers' outputs."""

    def __init__(self, spec: BlockLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.layer = build(spec.layer, arch, weights, path)
        means = [BlockMeanSpec(key=f"{mixer}_res", eps=spec.eps) for mixer in ("self_attention", "mlp")]
        self.attention_mean, self.mlp_mean = (BlockMean(mean, arch, weights, path) for mean in means)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        layer = self.layer
        r = layer.attention(layer.pre_attn(self.attention_mean(x, ctx)), ctx, cache)
        if self.spec.opens:
            keep_sum(x, self.spec.eps, ctx)
        x = r if self.spec.opens else x + r
        return x + layer.mlp(layer.pre_mlp(self.mlp_mean(x, ctx)), ctx, cache)
