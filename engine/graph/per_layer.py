"""What enters every layer beside the residual stream: inputs of its own per token, a factor, the embedding again.

Letters: B rows, L length, D model dimension, N layers, P dimension of a per-layer input. Order of operations as in
mlx-lm 0.32.2 (models/gemma3n.py, gemma4_text.py, talkie.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward, build
from engine.graph.norms import norm_like_last
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, LayerSpec, StemSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class PerLayerStemSpec:
    """A stem that also prepares an input [P] per token and layer: a row of a second embedding plus a projection of the
    first. `at`: what the keys are under. Ids from `vocab` on have row 0."""

    stem: StemSpec
    at: str
    vocab: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class PerLayerGateSpec:
    """Input number `index` of the stem's, gated by the stream; `dim` is P."""

    index: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class TailedLayerSpec:
    """A layer, and after it, in this order: the gated per-layer input is added, the stream is multiplied by the scalar
    under `factor`, the embedding times the scalar under `embedded` is added."""

    layer: LayerSpec
    per_layer: PerLayerGateSpec | None = None
    factor: str | None = None
    embedded: str | None = None

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.layer.caches


class PerLayerStem:
    """Ids [B, L] -> the residual stream [B, L, D]; leaves [B, L, N, P] in the forward's extras."""

    def __init__(self, spec: PerLayerStemSpec, arch: ArchSpec, weights: Weights) -> None:
        self.spec = spec
        self.shape = (len(arch.layers), spec.dim)
        width = len(arch.layers) * spec.dim
        self.stem = build(spec.stem, arch, weights)
        self.table = self.stem.table
        self.rows = weights.embedding(f"{spec.at}.embed_tokens_per_layer", spec.vocab, width)
        self.projection = weights.linear(f"{spec.at}.per_layer_model_projection", width, arch.dim, bias=False)
        self.norm = norm_like_last("per_layer_projection_norm", spec.dim, arch, weights, spec.at)
        self.scale = arch.dim**-0.5

    def __call__(self, ctx: Forward) -> mx.array:
        x = self.stem(ctx)
        ids = mx.where(ctx.ids < self.spec.vocab, ctx.ids, mx.zeros_like(ctx.ids))
        rows = mx.unflatten(self.rows(ids) * self.spec.dim**0.5, -1, self.shape)  # [B, L, N, P]
        projected = self.norm(mx.unflatten(self.projection(x) * self.scale, -1, self.shape))
        ctx.extras["per_layer"] = (projected + rows) * 2.0**-0.5
        return x


class PerLayerGate:
    """x [B, L, D] -> what the layer's own input adds to the stream [B, L, D]."""

    def __init__(self, spec: PerLayerGateSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.index = spec.index
        self.gate = weights.linear(f"{path}.per_layer_input_gate", spec.dim, arch.dim, bias=False)
        self.projection = weights.linear(f"{path}.per_layer_projection", arch.dim, spec.dim, bias=False)
        self.norm = norm_like_last("post_per_layer_input_norm", arch.dim, arch, weights, path)

    def __call__(self, x: mx.array, ctx: Forward) -> mx.array:
        gated = nn.gelu_approx(self.gate(x)) * ctx.extras["per_layer"][:, :, self.index, :]  # [B, L, P]
        return self.norm(self.projection(gated))


class TailedLayer:
    def __init__(self, spec: TailedLayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.layer = build(spec.layer, arch, weights, path)
        self.per_layer = PerLayerGate(spec.per_layer, arch, weights, path) if spec.per_layer else None
        self.factor = weights.take(f"{path}.{spec.factor}", (1,)) if spec.factor else None
        self.embedded = weights.take(f"{path}.{spec.embedded}", (1,)) if spec.embedded else None

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        x = self.layer(x, ctx, cache)
        if self.per_layer is not None:
            x = x + self.per_layer(x, ctx)
        if self.factor is not None:
            x = x * self.factor
        return x if self.embedded is None else x + ctx.embedded * self.embedded.astype(x.dtype)
