"""Attention to the blocks of keys that an indexer ranks highest, a choice for each query and group of heads.

Letters: B rows, H query heads, I index heads, L query length, S keys, N blocks of keys, E index head dimension,
D model dimension. Order of operations as in mlx-lm 0.32.2 (models/minimax_m3_vl.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.forward import Forward
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, AttentionSpec, NormSpec, RopeSpec
from engine.kv.spec import CacheSpec

NOT_QUANTISED = "keeps an indexer's keys beside its own (mlx-lm quantises no list of caches)"


@dataclass(frozen=True, kw_only=True)
class IndexedBlocksSpec:
    """`attention` to the `top` of the blocks of `size` keys, the `local` last ones always among them.

    heads, dim, rope: of the indexer, whose keys are one head in a second cache; norms: of its queries and keys.
    """

    attention: AttentionSpec
    heads: int
    dim: int
    size: int
    top: int
    local: int
    rope: RopeSpec
    norms: tuple[NormSpec, NormSpec]

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        own = (*self.attention.caches, CacheSpec(head_dims=(self.dim,)))
        return tuple(replace(cache, only_native=NOT_QUANTISED) for cache in own)


class IndexedBlocks:
    """x [B, L, D] -> [B, L, D]; the keys and values in caches[cache], the index keys in caches[cache + 1]."""

    def __init__(self, spec: IndexedBlocksSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.attention = Attention(spec.attention, arch, weights, path)
        self.q = weights.linear(f"{path}.index_q_proj", spec.heads * spec.dim, arch.dim, bias=False)
        self.k = weights.linear(f"{path}.index_k_proj", spec.dim, arch.dim, bias=False)
        self.q_norm, self.k_norm = (build_norm(norm, spec.dim, weights, path) for norm in spec.norms)
        self.rope = build_rope(spec.rope)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        B, L, _ = x.shape
        index, scale = ctx.lone_kv(cache + 1), self.spec.attention.scale
        offset = index.offset
        new = self.rope(self.k_norm(self.k(x).reshape(B, L, 1, -1)).transpose(0, 2, 1, 3), offset)
        ranked, _ = index.append(new, mx.zeros((B, 1, L, 0), new.dtype)).dense()  # [B, 1, S, E]
        queries, view = self.attention.append(x, ctx, cache)
        queries = mx.depends(queries, index.arrays())  # what no step reads would wait unevaluated for ever
        if -(-ranked.shape[2] // self.spec.size) <= self.spec.top:
            return self.attention.output(view.attend(queries, scale, ctx.masks), x)
        asked = self.q_norm(self.q(x).reshape(B, L, self.spec.heads, -1)).transpose(0, 2, 1, 3)
        seen = chosen(self.rope(asked, offset), ranked, ctx.masks.causal(L, offset), self.spec)  # [B, I, L, S]
        seen = mx.repeat(seen, self.spec.attention.heads // self.spec.heads, axis=1)  # [B, H, L, S]
        return self.attention.output(view.attend(queries, scale, ctx.masks, select=seen), x)


def chosen(queries: mx.array, keys: mx.array, causal: mx.array, spec: IndexedBlocksSpec) -> mx.array:
    """Index queries [B, I, L, E], index keys [B, 1, S, E], causal [L, S] -> the keys to see, boolean [B, I, L, S].

    A block ranks by its best visible key.
    """
    L, S = causal.shape
    scores = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
    scores = mx.where(causal, scores, -mx.inf)
    whole = S // spec.size * spec.size
    best = mx.unflatten(scores[..., :whole], -1, (-1, spec.size)).max(axis=-1)  # [B, I, L, N]
    if whole < S:
        best = mx.concatenate([best, scores[..., whole:].max(axis=-1, keepdims=True)], axis=-1)
    if spec.local:
        block, own = mx.arange(best.shape[-1]), (mx.arange(S - L, S) // spec.size)[:, None]
        best = mx.where((block <= own) & (block > own - spec.local), mx.inf, best)
    top = mx.argpartition(-best, kth=spec.top - 1, axis=-1)[..., : spec.top]
    kept = mx.put_along_axis(mx.zeros(best.shape, dtype=mx.bool_), top, mx.array(True), axis=-1)
    return mx.repeat(kept, spec.size, axis=-1)[..., :S] & causal
