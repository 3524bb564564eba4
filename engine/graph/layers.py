"""The decoder layer: two mixers around a residual stream.

Letters: B rows, L length, D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx

from engine.graph.forward import Forward, build
from engine.graph.norms import Norm, build_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, LayerSpec, LinearSpec, NormSpec


@partial(mx.compile, shapeless=True)
def clipped_sum(x: mx.array, y: mx.array) -> mx.array:
    """x + y; in float16 clipped to the largest finite value (mlx-lm 0.32.2, models/gemma3_text.py)."""
    if x.dtype != mx.float16:
        return x + y
    bound = mx.finfo(mx.float16).max
    return mx.clip(x.astype(mx.float32) + y.astype(mx.float32), -bound, bound).astype(mx.float16)


class Layer:
    """x [B, L, D] -> [B, L, D] by `LayerSpec`. halves: who runs one token, in place of `enter` and `leave`
    (engine.graph.lean)."""

    def __init__(self, spec: LayerSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        def norm(norm_spec: NormSpec | None) -> Norm | None:
            return None if norm_spec is None else build_norm(norm_spec, arch.dim, weights, path)

        self.spec = spec
        self.halves: Callable[[mx.array, Forward, int], mx.array] | None = None
        self.attention = self.mlp = None
        if spec.attention is not None:
            self.attention = build(spec.attention, arch, weights, weights.join(path, spec.attn_key))
        if spec.mlp is not None:
            self.mlp = build(spec.mlp, arch, weights, weights.join(path, spec.mlp_key))
        self.pre_attn, self.post_attn = norm(spec.norms.pre_attn), norm(spec.norms.post_attn)
        self.pre_mlp, self.post_mlp = norm(spec.norms.pre_mlp), norm(spec.norms.post_mlp)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        if self.halves is not None and x.shape[1] == 1:
            return self.halves(x, ctx, cache)
        h = self.enter(x)
        return self.leave(x, h, None if self.attention is None else self.attention(h, ctx, cache), ctx, cache)

    def enter(self, x: mx.array) -> mx.array:
        """What the first mixer takes of x."""
        return self.pre_attn(x) if self.pre_attn else x

    def leave(self, x: mx.array, h: mx.array, mixed: mx.array | None, ctx: Forward | None, cache: int) -> mx.array:
        """The layer's x, from what entered it, what its first mixer took of that (h) and what it made of it (mixed)."""
        if self.spec.flow != "sequential":
            assert mixed is not None
            assert self.mlp is not None
            fed = self.mlp(self.pre_mlp(x) if self.pre_mlp else h, ctx, cache)
            return mixed + fed + x if self.spec.flow == "parallel" else x + mixed + fed
        if mixed is not None:
            x = self._sum(x, self.post_attn(mixed) if self.post_attn else mixed)
        if self.mlp is not None:
            r = self.mlp(self.pre_mlp(x) if self.pre_mlp else x, ctx, cache)
            x = self._sum(x, self.post_mlp(r) if self.post_mlp else r)
        return x

    def _sum(self, x: mx.array, r: mx.array) -> mx.array:
        if self.spec.residual_scale is not None:
            r = r * self.spec.residual_scale
        return clipped_sum(x, r) if self.spec.clip else x + r


class LinearMixer:
    """A linear map in a mixer's place."""

    def __init__(self, spec: LinearSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.linear = weights.linear(weights.join(path, spec.key), arch.dim, arch.dim, spec.bias)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        return self.linear(x)
