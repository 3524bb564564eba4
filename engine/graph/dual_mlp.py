"""A dense MLP and a mixture of experts side by side, each between norms of its own, added.

Letters: B rows, L length, D model dimension, N experts, k experts per token. Order of operations as in mlx-lm 0.32.2
(models/gemma4_text.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.experts import Experts, combine
from engine.graph.forward import Forward
from engine.graph.mlp import Mlp
from engine.graph.norms import Norm, norm_like_last
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, MlpSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class DualMlpSpec:
    """Keys are relative to the layer: mlp, router, experts.switch_glu and four norms."""

    dense: MlpSpec
    expert: MlpSpec
    experts: int
    top_k: int
    caches: tuple[CacheSpec, ...] = ()


class DualMlp:
    """x [B, L, D], not normalised -> [B, L, D]."""

    def __init__(self, spec: DualMlpSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        def norm(key: str) -> Norm:
            return norm_like_last(key, arch.dim, arch, weights, path)

        assert arch.norm is not None
        self.top_k, self.eps = spec.top_k, arch.norm.eps
        self.pre, self.post = norm("pre_feedforward_layernorm"), norm("post_feedforward_layernorm_1")
        self.pre_experts, self.post_experts = norm("pre_feedforward_layernorm_2"), norm("post_feedforward_layernorm_2")
        self.mlp = Mlp(spec.dense, arch, weights, f"{path}.mlp")
        self.experts = Experts(spec.expert, spec.experts, arch.dim, weights, f"{path}.experts.switch_glu")
        self.router = weights.linear(f"{path}.router.proj", spec.experts, arch.dim, bias=False)
        self.router_norm = weights.take(f"{path}.router.scale", (arch.dim,)) * arch.dim**-0.5
        self.expert_scale = weights.take(f"{path}.router.per_expert_scale", (spec.experts,))

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        dense = self.post(self.mlp(self.pre(x)))
        ids, scores = self._route(x)
        routed = combine(self.experts(self.pre_experts(x), ids), scores)
        return dense + self.post_experts(routed)

    def _route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Expert ids [B, L, k] and their weights: softmax over the picked logits, times a factor per expert."""
        k = self.top_k
        logits = self.router(mx.fast.rms_norm(x, self.router_norm, self.eps))  # [B, L, N]
        ids = mx.argpartition(logits, kth=-k, axis=-1)[..., -k:]
        scores = mx.softmax(mx.take_along_axis(logits, ids, axis=-1), axis=-1)
        return ids, scores * self.expert_scale[ids]
