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


def rms_norm(weight: mx.array | None, eps: float) -> Norm:
    return lambda x: mx.fast.rms_norm(x, weight, eps)


def layer_norm(weight: mx.array | None, bias: mx.array | None, eps: float) -> Norm:
    return lambda x: mx.fast.layer_norm(x, weight, bias, eps)


def by_head(norm: Norm, weight: mx.array) -> Norm:
    """A weight per head [H, E] on x [B, L, H, E], outside of the norm."""
    return lambda x: weight * norm(x)


def build_norm(spec: NormSpec, dim: int, weights: Weights, path: str, heads: int = 1) -> Norm:
    """The norm of `dim` values whose key is relative to `path`."""
    if spec.key is None:
        return rms_norm(None, spec.eps) if spec.kind == "rms" else layer_norm(None, None, spec.eps)
    key = weights.join(path, spec.key)
    if spec.kind == "gain":
        factor = weights.take(key, (1,))
        return lambda x: x * factor.astype(x.dtype)
    if spec.kind == "rms_heads":
        return by_head(rms_norm(None, spec.eps), weights.take(key, (heads, dim)))
    if spec.kind == "layer_heads":
        return by_head(layer_norm(None, None, spec.eps), weights.take(f"{key}.weight", (heads, dim)))
    if spec.kind == "layer_stacked":
        rows = [weights.take(f"{key}.norms.{h}.weight", (dim,)) for h in range(heads)]
        return by_head(layer_norm(None, None, spec.eps), mx.stack(rows))
    weight = weights.take(f"{key}.weight", (dim,))
    if spec.offset and spec.kind == "rms":
        # Added at each call, as mlx-lm does: without the small operations between the large ones MLX's CPU scheduler
        # has more of the large ones in flight, and peak memory is 1 % higher.
        return lambda x: mx.fast.rms_norm(x, spec.offset + weight, spec.eps)
    weight = spec.offset + weight if spec.offset else weight
    if spec.kind == "rms":
        return rms_norm(weight, spec.eps)
    if spec.kind == "rms_cast":
        return lambda x: mx.fast.rms_norm(x, weight.astype(x.dtype), spec.eps)
    bias = weights.take(f"{key}.bias", (dim,)) if spec.bias else None
    return layer_norm(weight, bias, spec.eps)


def norm_like_last(key: str, dim: int, arch: ArchSpec, weights: Weights, path: str) -> Norm:
    """A norm under `key` of the kind and with the epsilon of the final one."""
    assert arch.norm is not None
    return build_norm(replace(arch.norm, key=key), dim, weights, path)
