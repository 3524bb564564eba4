"""Latent attention to the tokens that an indexer ranks highest, one choice for all heads of a query.

Letters: B rows, L length, S keys, P picked keys, D model dimension, I index heads, E index head dimension, R rank of
the latent, T turned part of a key. Order of operations as in mlx-lm 0.32.2 (models/deepseek_v32.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.latent import LatentAttention, LatentSpec
from engine.graph.norms import layer_norm
from engine.graph.params import Weights
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, RopeSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class IndexedTokensSpec:
    """`latent` attention to the `top` keys. heads, dim, rope: of the indexer, whose keys are one head in a second
    cache."""

    latent: LatentSpec
    heads: int
    dim: int
    top: int
    rope: RopeSpec

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        own = self.latent.caches
        return (*own, *(replace(cache, head_dims=(self.dim,)) for cache in own))


class IndexedTokens:
    """x [B, L, D] -> [B, L, D]; the latents in caches[cache], the index keys in caches[cache + 1]."""

    def __init__(self, spec: IndexedTokensSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.attention = LatentAttention(spec.latent, arch, weights, path)
        at, rank = f"{path}.indexer", spec.latent.q_rank or arch.dim
        self.q = weights.linear(f"{at}.wq_b", spec.heads * spec.dim, rank, bias=False)
        self.k = weights.linear(f"{at}.wk", spec.dim, arch.dim, bias=False)
        weight, bias = (weights.take(f"{at}.k_norm.{part}", (spec.dim,)) for part in ("weight", "bias"))
        self.k_norm = layer_norm(weight, bias, 1e-5)
        self.weigh = weights.linear(f"{at}.weights_proj", spec.heads, arch.dim, bias=False)
        self.rope = build_rope(spec.rope)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        inner, L, offset = self.attention, x.shape[1], ctx.lone_kv(cache).offset
        low = inner.low_rank(x)
        free, turned = inner.queries(low, offset)
        view = ctx.kv(cache).append(*inner.latent(x, offset))
        mask = ctx.masks.causal(L, offset) if L > 1 else None
        picked = self.picked(x, low, mask, ctx, cache + 1)  # [B, 1, L, P]
        free = mx.depends(free, ctx.lone_kv(cache + 1).arrays())  # what no step reads would wait unevaluated for ever
        select = None
        if picked is not None and L == 1:
            latent, keys = (mx.take_along_axis(a, picked.swapaxes(-1, -2), axis=2) for a in view.dense())
            view = view.over(latent, keys)
        elif picked is not None:
            nothing = mx.zeros((*picked.shape[:-1], offset + L), dtype=mx.bool_)
            select = mx.put_along_axis(nothing, picked, mx.array(True), axis=-1)  # [B, 1, L, S]
        return inner.output(inner.attend(free, turned, view, ctx.masks, select), x)

    def picked(self, x: mx.array, low: mx.array, mask: mx.array | None, ctx: Forward, cache: int) -> mx.array | None:
        """The keys of each query [B, 1, L, P], None where there is room for all. mask [L, S], None for one query."""
        B, L, _ = x.shape
        spec, index = self.spec, ctx.lone_kv(cache)
        offset = index.offset
        new = self.rope(self.k_norm(self.k(x)).reshape(B, 1, L, -1), offset)
        keys, _ = index.append(new, mx.zeros((B, 1, L, 0), new.dtype)).dense()  # [B, 1, S, E]
        if keys.shape[2] <= spec.top:
            return None
        queries = self.rope(self.q(low).reshape(B, L, spec.heads, -1).swapaxes(1, 2), offset)
        scores = mx.maximum(queries @ keys.swapaxes(-1, -2), 0)  # [B, I, L, S]
        weights = self.weigh(x) * (spec.heads**-0.5 * spec.dim**-0.5)  # [B, L, I]
        scores = scores * weights.swapaxes(-1, -2)[..., None]
        # The order of the sum, and with it the bits, depends on the number of queries.
        first, *others = mx.split(scores, spec.heads, axis=1)
        total = scores.sum(axis=1, keepdims=True) if L == 1 else sum(others, first)
        total = total if mask is None else mx.where(mask, total, -mx.inf)
        return mx.argpartition(total, kth=-spec.top, axis=-1)[..., -spec.top :]
