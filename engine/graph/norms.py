"""Normalisations by `NormSpec`.

Letters: H heads, E head dimension; the last axis is normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import mlx.core as mx

from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, NormSpec


class Norm:
    """x -> x normalised: `compute` of x and of the norm's arrays. Norms that compute alike share `compute`; traced: it
    is a compiled trace (engine.graph.lean)."""

    def __init__(self, compute: Callable[..., mx.array], *arrays: mx.array | None) -> None:
        self.traced = False
        self.compute, self.arrays = compute, tuple(a for a in arrays if a is not None)

    def __call__(self, x: mx.array) -> mx.array:
        return self.compute(x, *self.arrays)


@cache
def _rms(eps: float) -> Callable[..., mx.array]:
    return lambda x, weight=None: mx.fast.rms_norm(x, weight, eps)


@cache
def _rms_cast(eps: float) -> Callable[..., mx.array]:
    return lambda x, weight: mx.fast.rms_norm(x, weight.astype(x.dtype), eps)


@cache
def _rms_shifted(eps: float, offset: float) -> Callable[..., mx.array]:
    # Added at each call, as mlx-lm does: without the small operations between the large ones MLX's CPU scheduler has
    # more of the large ones in flight, and peak memory is 1 % higher.
    return lambda x, weight: mx.fast.rms_norm(x, offset + weight, eps)


@cache
def _layer(eps: float) -> Callable[..., mx.array]:
    return lambda x, weight=None, bias=None: mx.fast.layer_norm(x, weight, bias, eps)


@cache
def _by_head(inner: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda x, weight: weight * inner(x)


def _gain(x: mx.array, factor: mx.array) -> mx.array:
    return x * factor.astype(x.dtype)


def rms_norm(weight: mx.array | None, eps: float) -> Norm:
    return Norm(_rms(eps), weight)


def layer_norm(weight: mx.array | None, bias: mx.array | None, eps: float) -> Norm:
    return Norm(_layer(eps), weight, bias)


def build_norm(spec: NormSpec, dim: int, weights: Weights, path: str, heads: int = 1) -> Norm:
    """The norm of `dim` values whose key is relative to `path`."""
    if spec.key is None:
        return rms_norm(None, spec.eps) if spec.kind == "rms" else layer_norm(None, None, spec.eps)
    key = weights.join(path, spec.key)
    if spec.kind == "gain":
        return Norm(_gain, weights.take(key, (1,)))
    if spec.kind == "rms_heads":
        return Norm(_by_head(_rms(spec.eps)), weights.take(key, (heads, dim)))
    if spec.kind == "layer_heads":
        return Norm(_by_head(_layer(spec.eps)), weights.take(f"{key}.weight", (heads, dim)))
    if spec.kind == "layer_stacked":
        rows = [weights.take(f"{key}.norms.{h}.weight", (dim,)) for h in range(heads)]
        return Norm(_by_head(_layer(spec.eps)), mx.stack(rows))
    weight = weights.take(f"{key}.weight", (dim,))
    if spec.offset and spec.kind == "rms":
        return Norm(_rms_shifted(spec.eps, spec.offset), weight)
    weight = spec.offset + weight if spec.offset else weight
    if spec.kind == "rms":
        return rms_norm(weight, spec.eps)
    if spec.kind == "rms_cast":
        return Norm(_rms_cast(spec.eps), weight)
    bias = weights.take(f"{key}.bias", (dim,)) if spec.bias else None
    return layer_norm(weight, bias, spec.eps)


def norm_like_last(key: str, dim: int, arch: ArchSpec, weights: Weights, path: str) -> Norm:
    """A norm under `key` of the kind and with the epsilon of the final one."""
    assert arch.norm is not None
    return build_norm(replace(arch.norm, key=key), dim, weights, path)
