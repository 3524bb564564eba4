"""Alternating updates: a stack of residual streams of which a layer runs one and predicts and corrects the others.

Letters: A streams, B rows, L length, D model dimension. The decoder's x is the stack [A, B, L, D]. Order of operations
and dtypes as in mlx-lm 0.32.2 (models/gemma3n.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.graph.forward import Forward, build
from engine.graph.norms import Norm, norm_like_last
from engine.graph.params import Weights
from engine.graph.per_layer import PerLayerGate, PerLayerGateSpec
from engine.graph.spec import ArchSpec, LayerSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class StackedStemSpec:
    """A stem whose stream becomes `streams`, the further ones by projections `altup_projections` under `at`."""

    stem: Any
    at: str
    streams: int


@dataclass(frozen=True, kw_only=True)
class UnstackSpec:
    """The outlet: the mean of the streams, the further ones by projections `altup_unembed_projections` under `at`."""

    at: str
    streams: int


@dataclass(frozen=True, kw_only=True)
class AltUpLayerSpec:
    """attention and mlp with four norms, around them the prediction and correction of `streams` streams.

    active: the stream that runs. coef_clip: bound on the stored coefficients. rank: of the learned residual beside
    attention (laurel). correct_scale: scale the corrected stream before the per-layer input is gated by it.
    """

    layer: LayerSpec
    per_layer: PerLayerGateSpec
    streams: int
    active: int
    coef_clip: float | None
    correct_scale: bool
    rank: int

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.layer.caches


def _magnitude(x: mx.array) -> mx.array:
    return mx.mean(x**2, axis=-1, keepdims=True) ** 0.5


def _rescaled(first: mx.array, others: mx.array) -> mx.array:
    """`others` [A - 1, B, L, D] with the magnitude of `first` [B, L, D]."""
    floor = mx.finfo(first.dtype).min
    return others * (_magnitude(first) / mx.maximum(_magnitude(others), floor))


def _maps(at: str, count: int, arch: ArchSpec, weights: Weights) -> list[Any]:
    return [weights.linear(f"{at}.{i}", arch.dim, arch.dim, bias=False) for i in range(count)]


class StackedStem:
    """Ids [B, L] -> the stack [A, B, L, D]."""

    def __init__(self, spec: StackedStemSpec, arch: ArchSpec, weights: Weights) -> None:
        self.stem = build(spec.stem, arch, weights)
        self.table = self.stem.table
        self.projections = _maps(f"{spec.at}.altup_projections", spec.streams - 1, arch, weights)

    def __call__(self, ctx: Forward) -> mx.array:
        x = self.stem(ctx)
        others = mx.stack([projection(x) for projection in self.projections])
        return mx.concatenate([x[None], _rescaled(x, others)])


class Unstack:
    """The stack [A, B, L, D] -> one stream [B, L, D]."""

    def __init__(self, spec: UnstackSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.projections = _maps(f"{spec.at}.altup_unembed_projections", spec.streams - 1, arch, weights)

    def __call__(self, x: mx.array, ctx: Forward) -> mx.array:
        others = mx.stack([projection(x[i]) for i, projection in enumerate(self.projections, start=1)])
        return mx.mean(mx.concatenate([x[:1], _rescaled(x[0], others)]), axis=0)


class AltUpLayer:
    def __init__(self, spec: AltUpLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        def norm(key: str) -> Norm:
            return norm_like_last(key, arch.dim, arch, weights, path)

        def coefficients(key: str, out: int) -> mx.array:
            weight = weights.take(f"{path}.altup.{key}.weight", (out, spec.streams)).astype(mx.float32)
            return weight if spec.coef_clip is None else mx.clip(weight, -spec.coef_clip, spec.coef_clip)

        self.spec = spec
        self.layer = build(spec.layer, arch, weights, path)
        self.per_layer = PerLayerGate(spec.per_layer, arch, weights, path)
        self.left = weights.linear(f"{path}.laurel.linear_left", spec.rank, arch.dim, bias=False)
        self.right = weights.linear(f"{path}.laurel.linear_right", arch.dim, spec.rank, bias=False)
        self.laurel_norm, self.router_norm = norm("laurel.post_laurel_norm"), norm("altup.router_norm")
        self.router = weights.linear(f"{path}.altup.modality_router", spec.streams, arch.dim, bias=False)
        self.prediction = coefficients("prediction_coefs", spec.streams**2)
        self.correction = coefficients("correction_coefs", spec.streams)
        self.output_scale = weights.take(f"{path}.altup.correct_output_scale", (arch.dim,))
        self.router_scale = arch.dim**-1.0

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        """x [A, B, L, D] -> [A, B, L, D]."""
        spec, layer = self.spec, self.layer
        predicted = self._predict(x)
        active = predicted[spec.active]  # [B, L, D]
        normed = layer.pre_attn(active)
        laurel = normed + self.laurel_norm(self.right(self.left(normed)))
        attended = active + layer.post_attn(layer.attention(normed, ctx, cache))
        attended = (attended + laurel) * 2.0**-0.5
        activated = attended + layer.post_mlp(layer.mlp(layer.pre_mlp(attended)))
        corrected = self._correct(predicted, activated)
        first = corrected[spec.active]
        if spec.correct_scale:
            first = first * self.output_scale
        return mx.concatenate([corrected[:1], corrected[1:] + self.per_layer(first, ctx)])

    def _modalities(self, x: mx.array) -> mx.array:
        """[B, L, D] -> [B, L, A], float32."""
        return mx.tanh(self.router(self.router_norm(x) * self.router_scale).astype(mx.float32))

    def _predict(self, x: mx.array) -> mx.array:
        streams = self.spec.streams
        coefficients = self._modalities(x[self.spec.active]) @ self.prediction.T  # [B, L, A*A]
        coefficients = coefficients.reshape(*x.shape[1:3], streams, streams).transpose(0, 1, 3, 2)
        wide = x.astype(mx.float32)
        predicted = (wide.transpose(1, 2, 3, 0) @ coefficients).transpose(3, 0, 1, 2)  # [A, B, L, D]
        return (predicted + wide).astype(x.dtype)

    def _correct(self, predicted: mx.array, activated: mx.array) -> mx.array:
        coefficients = self._modalities(activated) @ self.correction.T + 1.0  # [B, L, A]
        innovation = activated - predicted[self.spec.active]
        corrected = innovation[None] * coefficients.moveaxis(2, 0)[..., None]  # [A, B, L, D]
        return (corrected + predicted).astype(activated.dtype)
