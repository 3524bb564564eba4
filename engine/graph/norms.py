"""Normalisations by `NormSpec`.

Letters: H heads, E head dimension; the last axis is normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx

from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, NormSpec

Norm = Callable[[mx.array], mx.array]


class RmsNorm:
    def __init__(self, weight: mx.array | None, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self.weight, self.eps)


class LayerNorm:
    def __init__(self, weight: mx.array | None, bias: mx.array | None, eps: float) -> None:
        self.weight, self.bias, self.eps = weight, bias, eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self.weight, self.bias, self.eps)


class HeadsLayerNorm:
    """A weight per head [H, E] on x [B, L, H, E], outside of the norm."""

    def __init__(self, weight: mx.array, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: mx.array) -> mx.array:
        return self.weight * mx.fast.layer_norm(x, None, None, self.eps)


class Gain:
    """A scalar factor in a norm's place."""

    def __init__(self, factor: mx.array) -> None:
        self.factor = factor

    def __call__(self, x: mx.array) -> mx.array:
        return x * self.factor.astype(x.dtype)


def build_norm(spec: NormSpec, dim: int, weights: Weights, path: str, heads: int = 1) -> Norm:
    """The norm of `dim` values whose key is relative to `path`."""
    if spec.key is None:
        return RmsNorm(None, spec.eps) if spec.kind == "rms" else LayerNorm(None, None, spec.eps)
    key = weights.join(path, spec.key)
    if spec.kind == "gain":
        return Gain(weights.take(key, (1,)))
    if spec.kind == "rms_heads":
        by_head, plain = weights.take(key, (heads, dim)), RmsNorm(None, spec.eps)
        return lambda x: plain(x) * by_head
    if spec.kind == "layer_heads":
        return HeadsLayerNorm(weights.take(f"{key}.weight", (heads, dim)), spec.eps)
    if spec.kind == "layer_stacked":
        rows = [weights.take(f"{key}.norms.{h}.weight", (dim,)) for h in range(heads)]
        return HeadsLayerNorm(mx.stack(rows), spec.eps)
    weight = weights.take(f"{key}.weight", (dim,))
    weight = spec.offset + weight if spec.offset else weight
    if spec.kind == "rms":
        return RmsNorm(weight, spec.eps)
    if spec.kind == "rms_cast":
        return lambda x: mx.fast.rms_norm(x, weight.astype(x.dtype), spec.eps)
    bias = weights.take(f"{key}.bias", (dim,)) if spec.bias else None
    return LayerNorm(weight, bias, spec.eps)


def norm_like_last(key: str, dim: int, arch: ArchSpec, weights: Weights, path: str) -> Norm:
    """A norm under `key` of the kind and with the epsilon of the final one."""
    assert arch.norm is not None
    return build_norm(replace(arch.norm, key=key), dim, weights, path)
