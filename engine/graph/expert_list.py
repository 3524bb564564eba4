"""A mixture whose experts are modules of their own, run token by token (mlx-lm 0.32.2, models/dbrx.py).

Letters: B rows, L length, D model dimension, k experts per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.graph.experts import Router
from engine.graph.forward import Forward
from engine.graph.mlp import Mlp
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, MlpSpec, RouterSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class ExpertListSpec:
    """`experts` MLPs under `<at>.<e>`, each with its own checkpoint keys."""

    experts: int
    top_k: int
    router: RouterSpec
    expert: MlpSpec
    at: str = "experts"
    caches: tuple[CacheSpec, ...] = ()


class ExpertList:
    """x [B, L, D] -> [B, L, D]. One vector at a time, as the oracle does: a batched product rounds differently."""

    def __init__(self, spec: ExpertListSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.router = Router(spec.router, spec.experts, spec.top_k, arch.dim, weights, path)
        at = weights.join(path, spec.at)
        self.experts = [Mlp(spec.expert, arch, weights, f"{at}.{e}") for e in range(spec.experts)]

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        tokens = x.reshape(-1, x.shape[-1])  # [B*L, D]
        ids, scores = self.router(tokens)  # [B*L, k] twice
        chosen: Any = ids.tolist()
        rows = []
        for token, weight, picked in zip(tokens, scores, chosen, strict=True):
            outputs = mx.stack([self.experts[e](token) for e in picked], axis=-1)  # [D, k]
            rows.append((outputs * weight).sum(axis=-1))
        return mx.stack(rows, axis=0).reshape(x.shape)
