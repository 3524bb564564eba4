"""Mixtures of experts by `MoeSpec`: the router, the stacked experts, the shared expert.

Letters: B rows, L length, D model dimension, N experts, k experts per token. Order of operations and of ties as in
mlx-lm 0.32.2 (models/switch_layers.py and the routers of its models).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import mlx.core as mx
import mlx.nn as nn

from engine.graph.forward import Forward, Positionwise
from engine.graph.mlp import Mlp, activation
from engine.graph.norms import build_norm
from engine.graph.params import ExpertsLinear, Linear, Weights
from engine.graph.spec import ArchSpec, MlpSpec, MoeSpec, RouterSpec

# From this many (token, expert) pairs on, tokens are sorted by expert before the products.
SORT_FROM = 64


class Experts:
    """N MLPs, of which each token passes k: x [..., D], ids [..., k] -> [..., k, D]."""

    def __init__(self, spec: MlpSpec, experts: int, dim: int, weights: Weights, path: str) -> None:
        def stack(key: str, out: int, width: int) -> ExpertsLinear:
            return weights.experts(weights.join(path, key), experts, out, width, spec.bias)

        self.act, self.training = activation(spec), weights.training
        self.gate = stack(spec.gate, spec.hidden, dim) if spec.gate else None
        self.up = stack(spec.up, spec.hidden, dim)
        self.down = stack(spec.down, dim, spec.hidden)

    def __call__(self, x: mx.array, ids: mx.array) -> mx.array:
        if self.training:
            return self._through_all(x, ids)
        x = mx.expand_dims(x, (-2, -3))  # [..., 1, 1, D]
        order = ids.size >= SORT_FROM
        picked, inverse = ids, None
        if order:
            flat = ids.flatten()
            by_expert = mx.argsort(flat)
            inverse = mx.argsort(by_expert)
            x, picked = x.flatten(0, -3)[by_expert // ids.shape[-1]], flat[by_expert]
        up = self.up(x, picked, order)
        hidden = self.act(up) if self.gate is None else self.act(self.gate(x, picked, order), up)
        out = self.down(hidden, picked, order)
        if inverse is not None:
            out = mx.unflatten(out[inverse], 0, ids.shape)
        return out.squeeze(-2)

    def _through_all(self, x: mx.array, ids: mx.array) -> mx.array:
        """The same with every token through every expert: plain products, whose gradients every device has."""
        tokens = x.reshape(1, -1, x.shape[-1])  # [1, T, D]
        up = self.up.of_all(tokens)  # [N, T, M]
        hidden = self.act(up) if self.gate is None else self.act(self.gate.of_all(tokens), up)
        out = self.down.of_all(hidden).transpose(1, 0, 2)  # [T, N, D]
        picked = mx.take_along_axis(out, ids.reshape(out.shape[0], -1, 1), axis=1)  # [T, k, D]
        return picked.reshape(*ids.shape, -1)


def _scores(logits: mx.array, spec: RouterSpec) -> mx.array:
    if spec.score.endswith("_float32"):
        logits = logits.astype(mx.float32)
    if spec.temperature is not None:
        logits = logits / spec.temperature
    if spec.softcap is not None:
        logits = mx.tanh(logits / spec.softcap) * spec.softcap
    if spec.score == "softmax":
        return mx.softmax(logits, axis=-1, precise=True)
    if spec.score in ("softmax_plain", "softmax_float32"):
        return mx.softmax(logits, axis=-1)
    if spec.score in ("sigmoid", "sigmoid_float32"):
        return mx.sigmoid(logits)
    if spec.score == "sqrtsoftplus_float32":
        return mx.sqrt(nn.softplus(logits))
    return logits


def select(
    logits: mx.array, correction: mx.array | None, *, spec: RouterSpec, top_k: int, training: bool = False
) -> tuple[mx.array, mx.array]:
    """Router logits [..., N] -> expert ids [..., k] and their scores [..., k]. training: ids carry no gradient."""
    scores = _scores(logits, spec)
    if correction is not None and spec.correction_cast:
        correction = correction.astype(scores.dtype)
    ranked = scores if correction is None else scores + correction
    if spec.groups > 1:
        ranked = mx.unflatten(ranked, axis=-1, shape=(spec.groups, -1))
        best = spec.strength == "best"
        strength = mx.topk(ranked, 1 if best else 2, axis=-1).sum(axis=-1, keepdims=True)
        dropped = spec.groups - spec.kept_groups
        losers = mx.argpartition(strength, kth=dropped - 1, axis=-2)[..., :dropped, :]
        ranked = mx.put_along_axis(ranked, losers, mx.array(spec.dropped, ranked.dtype), axis=-2)
        ranked = mx.flatten(ranked, -2, -1)
        scores = ranked if best else scores
    if spec.pick == "front":
        ids = mx.argpartition(-ranked, kth=top_k - 1, axis=-1)[..., :top_k]
    else:
        ids = mx.argpartition(ranked, kth=-top_k, axis=-1)[..., -top_k:]
    if training:
        ids = mx.stop_gradient(ids)
    picked = mx.take_along_axis(scores, ids, axis=-1)
    if spec.selected == "softmax":
        picked = mx.softmax(picked, axis=-1, precise=True)
    elif spec.selected == "softmax_float32":
        picked = mx.softmax(picked.astype(mx.float32), axis=-1)
    elif spec.selected == "sigmoid_float32":
        picked = mx.sigmoid(picked.astype(mx.float32))
    if spec.normalise and not (spec.only_above_one and top_k == 1):
        total = picked.sum(axis=-1, keepdims=True)
        if spec.normalise == "max" and spec.eps is not None:
            total = mx.maximum(total, spec.eps)
        elif spec.eps is not None:
            total = total + spec.eps
        picked = picked / total
    if spec.scale is not None:
        picked = picked * spec.scale
    return ids, picked.astype(logits.dtype) if spec.cast == "logits" else picked


@lru_cache
def selection(spec: RouterSpec, top_k: int, training: bool = False) -> Callable[..., tuple[mx.array, mx.array]]:
    """`select` of a spec: one function for all layers, so that each shape is traced once."""
    chosen = partial(select, spec=spec, top_k=top_k, training=training)
    return mx.compile(chosen) if spec.compiled else chosen


class Router:
    def __init__(self, spec: RouterSpec, experts: int, top_k: int, dim: int, weights: Weights, path: str) -> None:
        self.spec = spec
        key = weights.join(path, spec.key)
        # A bare parameter is a Linear that nothing can pack.
        bare = Linear(weights.take(f"{key}.weight", (experts, dim)), None) if spec.raw else None
        self.linear = bare or weights.linear(key, experts, dim, spec.bias)
        self.correction = None
        if spec.correction is not None:
            self.correction = weights.take(weights.join(path, spec.correction), (experts,))
        self.select = selection(spec, top_k, weights.training)

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        seen = x.astype(mx.float32) if self.spec.float32_in else x
        ids, scores = self.select(self.linear(seen), self.correction)
        return ids, scores.astype(x.dtype) if self.spec.cast == "input" else scores


def combine(outputs: mx.array, scores: mx.array) -> mx.array:
    """Outputs [..., k, D] weighted by scores [..., k] and added: [..., D]."""
    return (outputs * scores[..., None]).sum(axis=-2)


@partial(mx.compile, shapeless=True)
def combine_compiled(outputs: mx.array, scores: mx.array) -> mx.array:
    return combine(outputs, scores).astype(outputs.dtype)


class Moe(Positionwise):
    """x [B, L, D] -> [B, L, D]."""

    def __init__(self, spec: MoeSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        self.router = Router(spec.router, spec.experts, spec.top_k, arch.dim, weights, path)
        inner = spec.inner
        width = arch.dim if inner is None else inner.dim
        self.experts = Experts(spec.expert, spec.experts, width, weights, weights.join(path, spec.at))
        self.down = self.up = self.norm = None
        if inner is not None:
            self.down = weights.linear(weights.join(path, inner.down), width, arch.dim, inner.bias)
            self.up = weights.linear(weights.join(path, inner.up), arch.dim, width, inner.bias)
            self.norm = build_norm(inner.norm, width, weights, path) if inner.norm else None
        self.shared = self.shared_gate = None
        if spec.shared is not None:
            self.shared = Mlp(spec.shared, arch, weights, weights.join(path, spec.shared_at))
            if spec.shared_gate is not None:
                self.shared_gate = weights.linear(weights.join(path, spec.shared_gate), 1, arch.dim, bias=False)

    def __call__(self, x: mx.array, ctx: Forward | None = None, cache: int = 0) -> mx.array:
        ids, scores = self.router(x)
        y = self._routed(self.down(x) if self.down else x, ids, scores)
        if self.norm is not None:
            y = self.norm(y)
        if self.up is not None:
            y = self.up(y)
        if self.shared is None:
            return y
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = mx.sigmoid(self.shared_gate(x)) * shared
        return y + shared

    def _routed(self, x: mx.array, ids: mx.array, scores: mx.array) -> mx.array:
        spec = self.spec
        if spec.prescale:
            return self.experts(x * scores, ids).squeeze(-2)
        y = self.experts(x, ids)  # [B, L, k, D]
        if spec.compiled:
            return combine_compiled(y, scores)
        out = combine(y, scores.astype(mx.float32) if spec.scores_float32 else scores)
        if spec.cast:
            out = out.astype(y.dtype)
        return out if spec.scale is None else out * spec.scale
