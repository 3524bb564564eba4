"""Mixtures that no `MoeSpec` describes.

Letters: B rows, L length, D model dimension, N experts, k experts per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.graph.experts import Experts, Moe, Router, combine
from engine.graph.forward import Forward, Positionwise
from engine.graph.mlp import Mlp
from engine.graph.norms import Norm, norm_like_last
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, MlpSpec, MoeSpec, RouterSpec


@dataclass(frozen=True, kw_only=True)
class BlendedMoeSpec:
    """`moe`, without a shared expert of its own, beside `shared`, weighted against each other by a two-way softmax of
    the map under `blend` (mlx-lm 0.32.2, models/Klear.py)."""

    moe: MoeSpec
    shared: MlpSpec
    shared_at: str = "shared_experts"
    blend: str = "coefficient"


class BlendedMoe(Positionwise):
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: BlendedMoeSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.moe = Moe(spec.moe, arch, weights, path)
        self.shared = Mlp(spec.shared, arch, weights, weights.join(path, spec.shared_at))
        self.blend = weights.linear(weights.join(path, spec.blend), 2, arch.dim, bias=True)

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        routed = self.moe(x)
        shares = mx.softmax(self.blend(x), axis=-1, precise=True)  # [B, L, 2]
        return routed * shares[..., :1] + self.shared(x) * shares[..., 1:]


@dataclass(frozen=True, kw_only=True)
class DualMlpSpec:
    """A dense MLP and a mixture side by side, each between norms of its own, added. Keys are relative to the layer:
    mlp, router, experts.switch_glu and four norms (mlx-lm 0.32.2, models/gemma4_text.py)."""

    dense: MlpSpec
    expert: MlpSpec
    experts: int
    top_k: int


class DualMlp(Positionwise):
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


@dataclass(frozen=True, kw_only=True)
class ExpertListSpec:
    """`experts` MLPs under `<at>.<e>`, each with checkpoint keys of its own (mlx-lm 0.32.2, models/dbrx.py)."""

    experts: int
    top_k: int
    router: RouterSpec
    expert: MlpSpec
    at: str = "experts"


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


@dataclass(frozen=True, kw_only=True)
class SparseMixerSpec:
    """A mixture whose router drops, for each pick, the experts further than 2 * jitter (relative) from the best
    (mlx-lm 0.32.2, models/phimoe.py)."""

    experts: int
    top_k: int
    jitter: float
    expert: MlpSpec
    at: str = "switch_mlp"
    router: str = "gate"


def pick(logits: mx.array, top_k: int, jitter: float) -> tuple[mx.array, mx.array]:
    """Router logits [..., N] -> expert ids [..., k], picked one after another, and their scores [..., k], by a softmax
    over the close rivals of each."""
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


class SparseMixer(Positionwise):
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: SparseMixerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.router = weights.linear(weights.join(path, spec.router), spec.experts, arch.dim, bias=False)
        self.experts = Experts(spec.expert, spec.experts, arch.dim, weights, weights.join(path, spec.at))

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        ids, scores = pick(self.router(x), self.spec.top_k, self.spec.jitter)
        return combine(self.experts(x, ids), scores)
