"""What stands before the layers and after them: the embedding, and the head.

Letters: B rows, L length, D model dimension, V vocabulary.
"""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.norms import build_norm
from engine.graph.params import Embedding, Weights
from engine.graph.spec import ArchSpec, HeadSpec, StemSpec
from engine.kv.base import one


class Stem:
    """Ids [B, L] -> the residual stream [B, L, D]. `table` is the token embedding."""

    def __init__(self, spec: StemSpec, arch: ArchSpec, weights: Weights) -> None:
        self.spec = spec
        self.table = weights.embedding(spec.key, arch.vocab, arch.dim)
        self.positions = None
        if spec.positions is not None:
            self.positions = weights.embedding(spec.positions[0], spec.positions[1], arch.dim)
        self.norm = build_norm(spec.norm, arch.dim, weights, "") if spec.norm else None

    def __call__(self, ctx: Forward) -> mx.array:
        x = self.table(ctx.ids)
        scale = self.spec.scale
        if scale is not None:
            x = x * (mx.array(scale, mx.bfloat16).astype(x.dtype) if self.spec.scale_bfloat16 else scale)
        if self.positions is not None:
            offset = one(ctx.caches[0].offset)
            x = x + self.positions(mx.arange(offset, offset + ctx.ids.shape[1]))
        return self.norm(x) if self.norm else x


@partial(mx.compile, shapeless=True)
def softcap_compiled(logits: mx.array, cap: float) -> mx.array:
    return mx.tanh(logits / cap) * cap


class Head:
    """Hidden states [..., D] -> logits [..., V]."""

    def __init__(self, spec: HeadSpec, arch: ArchSpec, weights: Weights, table: Embedding) -> None:
        self.spec = spec
        self.weight = None
        if spec.raw:
            self.weight = weights.take(spec.key, (arch.vocab, arch.dim))
        elif spec.tied is True or (spec.tied == "absent" and not weights.has(f"{spec.key}.weight")):
            self.linear = table.as_linear
        else:
            self.linear = weights.linear(spec.key, arch.vocab, arch.dim, spec.bias)
        self.gain = weights.take(spec.gain, (1,)) if spec.gain else None
        self.banned = mx.array(spec.banned) if spec.banned else None

    def __call__(self, hidden: mx.array) -> mx.array:
        spec = self.spec
        if spec.divide_hidden is not None:
            hidden = hidden / spec.divide_hidden
        logits = self.linear(hidden) if self.weight is None else hidden @ self.weight.T
        if self.gain is not None:
            logits = logits * self.gain.astype(logits.dtype)
        if spec.multiply is not None:
            logits = logits * spec.multiply
        if spec.divide is not None:
            logits = logits / spec.divide
        if spec.softcap is not None:
            if spec.softcap_compiled:
                logits = softcap_compiled(logits, spec.softcap)
            else:
                logits = mx.tanh(logits / spec.softcap) * spec.softcap
        if self.banned is not None:
            logits[..., self.banned] = -float("inf")
        return logits
