"""SparseMixer routing: experts picked one after another, each weighted by a softmax over its close rivals.

Letters: B rows, L length, D model dimension, N experts, k experts per token. Source: mlx-lm 0.32.2, models/phimoe.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.experts import Experts, combine
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, MlpSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class SparseMixerSpec:
    """A mixture whose router drops, for each pick, the experts further than 2 * jitter (relative) from the best."""

    experts: int
    top_k: int
    jitter: float
    expert: MlpSpec
    at: str = "switch_mlp"
    router: str = "gate"
    caches: tuple[CacheSpec, ...] = ()


def pick(logits: mx.array, top_k: int, jitter: float) -> tuple[mx.array, mx.array]:
    """Router logits [..., N] -> expert ids [..., k] and their scores [..., k]."""
    left, ids, scores = logits, [], []
    for _ in range(top_k):
        best = left.max(axis=-1, keepdims=True)
        winner = mx.argmax(left, axis=-1, keepdims=True)
        far = (best - logits) / mx.maximum(mx.abs(logits), best) > 2 * jitter
        rivals = mx.softmax(mx.where(far, -mx.inf, left), axis=-1, precise=True)
        ids.append(winner)
        scores.append(mx.take_along_axis(rivals, winner, axis=-1))
        left = mx.put_along_axis(left, winner, mx.array(-mx.inf, left.dtype), axis=-1)
    return mx.concatenate(ids, axis=-1), mx.concatenate(scores, axis=-1)


class SparseMixer:
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: SparseMixerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.router = weights.linear(weights.join(path, spec.router), spec.experts, arch.dim, bias=False)
        self.experts = Experts(spec.expert, spec.experts, arch.dim, weights, weights.join(path, spec.at))

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        ids, scores = pick(self.router(x), self.spec.top_k, self.spec.jitter)
        return combine(self.experts(x, ids), scores)
