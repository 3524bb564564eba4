"""Multi-head latent attention: keys and values are linear maps of one small vector a token, which is what is kept.

Letters: B rows, L length, S keys, D model dimension, H heads, R rank of the latent, N and T the parts of a query
without and with rope, V value dimension. Order of operations as in mlx-lm 0.32.2 (models/deepseek_v3.py,
deepseek_v2.py, mistral4.py, longcat_flash.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from engine.graph.attention import gated, scaled
from engine.graph.forward import Forward
from engine.graph.norms import rms_norm
from engine.graph.params import Weights
from engine.graph.renames import Arrays
from engine.graph.rope import build_rope
from engine.graph.spec import ArchSpec, GateSpec, QueryScale, RopeSpec
from engine.kv.base import KVView, Offset, one
from engine.kv.masks import Masks
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class LatentSpec:
    """Latent attention of `heads` queries of nope + turned values each.

    rank: of the latent; q_rank: of the queries' own, None for one plain projection. eps: of the norms on both. rope
    None: positions enter nowhere. kept: what the cache holds, the "latent" [B, 1, S, R] and the turned part of the keys
    [B, 1, S, T], or every head's keys and values ("heads"). joined: more than one token attends whole keys
    [S, N + T]; else the turned parts' products are an additive mask on the others'. q_factor, kv_factor: on queries
    and latent. bias: on the projections from and to D.
    """

    heads: int
    rank: int
    nope: int
    turned: int
    v_dim: int
    scale: float
    eps: float
    rope: RopeSpec | None
    q_rank: int | None = None
    bias: bool = False
    o: str = "o_proj"
    gate: GateSpec | None = None
    kept: Literal["latent", "heads"] = "latent"
    joined: bool = False
    q_factor: float | None = None
    kv_factor: float | None = None
    query_scale: QueryScale | None = None

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """One cache. One token attends the latent itself, more of them keys that are made of it: other bits."""
        if self.kept == "heads":
            return (CacheSpec(head_dims=(self.nope + self.turned, self.v_dim)),)
        return (
            CacheSpec(head_dims=(self.rank, self.turned), only_native="attends the latent that it keeps", block=None),
        )


class LatentAttention:
    """x [B, L, D] -> [B, L, D]. `queries`, `latent` and `attend` are its steps, for mixers that choose their keys."""

    def __init__(self, spec: LatentSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        H, N, T, V = spec.heads, spec.nope, spec.turned, spec.v_dim
        self.q_a = self.q_a_norm = None
        if spec.q_rank is None:
            self.q = weights.linear(f"{path}.q_proj", H * (N + T), arch.dim, bias=False)
        else:
            self.q_a = weights.linear(f"{path}.q_a_proj", spec.q_rank, arch.dim, spec.bias)
            self.q_a_norm = rms_norm(weights.take(f"{path}.q_a_layernorm.weight", (spec.q_rank,)), spec.eps)
            self.q = weights.linear(f"{path}.q_b_proj", H * (N + T), spec.q_rank, bias=False)
        self.kv_a = weights.linear(f"{path}.kv_a_proj_with_mqa", spec.rank + T, arch.dim, spec.bias)
        self.kv_norm = rms_norm(weights.take(f"{path}.kv_a_layernorm.weight", (spec.rank,)), spec.eps)
        if spec.kept == "heads":
            self.kv_b = weights.linear(f"{path}.kv_b_proj", H * (N + V), spec.rank, bias=False)
        else:
            self.embed = weights.heads(f"{path}.embed_q", H, spec.rank, N)
            self.unembed = weights.heads(f"{path}.unembed_out", H, V, spec.rank)
        self.gate = None
        if spec.gate is not None:
            out = H if spec.gate.per_head else H * V
            self.gate = weights.linear(f"{path}.{spec.gate.key}", out, arch.dim, spec.gate.bias)
        self.o = weights.linear(weights.join(path, spec.o), arch.dim, H * V, spec.bias)
        self.rope = build_rope(spec.rope) if spec.rope else None

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, L, offset = self.spec, x.shape[1], ctx.kv(cache).offset
        free, turned = self.queries(self.low_rank(x), offset)
        latent, keys = self.latent(x, offset)
        if spec.query_scale is not None:
            free, turned = (scaled(q, spec.query_scale, one(offset), ctx.embedded.dtype) for q in (free, turned))
        if spec.kept == "heads":
            return self.output(self._attend_heads(free, turned, latent, keys, ctx, cache), x)
        view = ctx.views[cache] = ctx.kv(cache).append(latent, keys)
        if spec.joined and L > 1:
            latent, keys = view.dense()
            whole = mx.concatenate([self.embed(latent, transpose=False), self._every_head(keys)], axis=-1)
            queries = mx.concatenate([free, turned], axis=-1)
            out = view.over(whole, self.unembed(latent)).attend(queries, spec.scale, ctx.masks)
            return self.output(out, x)
        return self.output(self.attend(free, turned, view, ctx.masks), x)

    def low_rank(self, x: mx.array) -> mx.array:
        """What the queries are made of: x itself, or its normalised map to q_rank values."""
        return x if self.q_a is None or self.q_a_norm is None else self.q_a_norm(self.q_a(x))

    def queries(self, low: mx.array, offset: Offset) -> tuple[mx.array, mx.array]:
        """`low_rank` of x -> the queries' parts without [B, H, L, N] and with rope [B, H, L, T]."""
        spec = self.spec
        q = self.q(low).reshape(*low.shape[:2], spec.heads, -1).transpose(0, 2, 1, 3)  # [B, H, L, N + T]
        if spec.q_factor is not None:
            q = q * spec.q_factor
        free, turned = mx.split(q, [spec.nope], axis=-1)
        return free, self.rope(turned, offset) if self.rope else turned

    def latent(self, x: mx.array, offset: Offset) -> tuple[mx.array, mx.array]:
        """x -> its latent [B, 1, L, R] and its key's turned part [B, 1, L, T]."""
        spec = self.spec
        latent, keys = mx.split(self.kv_a(x), [spec.rank], axis=-1)
        latent = self.kv_norm(latent)
        if spec.kv_factor is not None:
            latent = latent * spec.kv_factor
        keys = keys.reshape(*x.shape[:2], 1, spec.turned).transpose(0, 2, 1, 3)
        return mx.expand_dims(latent, 1), self.rope(keys, offset) if self.rope else keys

    def attend(
        self, free: mx.array, turned: mx.array, view: KVView, masks: Masks, select: mx.array | None = None
    ) -> mx.array:
        """Queries in two parts over a view of S latents and turned keys -> [B, H, L, V]. select: as in `KVView.attend`.

        One query is moved into the latent's space; for more of them keys and values are made of the latents.
        """
        latent, keys = view.dense()
        scale = self.spec.scale
        bias = (turned * scale) @ keys.swapaxes(-1, -2)  # [B, H, L, S]
        if free.shape[2] == 1:
            near = view.over(latent, latent)
            return self.unembed(near.attend(self.embed(free), scale, masks, bias=bias, select=select))
        whole = view.over(self.embed(latent, transpose=False), self.unembed(latent))
        return whole.attend(free, scale, masks, bias=bias, select=select)

    def output(self, out: mx.array, x: mx.array) -> mx.array:
        """What was attended [B, H, L, V], gated by x, through the last projection: [B, L, D]."""
        out = out.transpose(0, 2, 1, 3)  # [B, L, H, V]
        if self.gate is not None and self.spec.gate is not None:
            out = gated(out, self.gate(x), self.spec.gate)
        return self.o(out.reshape(*x.shape[:2], -1))

    def _every_head(self, keys: mx.array) -> mx.array:
        """The turned part [B, 1, S, T] for every head."""
        return mx.broadcast_to(keys, (keys.shape[0], self.spec.heads, *keys.shape[2:]))

    def _attend_heads(
        self, free: mx.array, turned: mx.array, latent: mx.array, keys: mx.array, ctx: Forward, cache: int
    ) -> mx.array:
        spec = self.spec
        kv = self.kv_b(latent.squeeze(1))  # [B, L, H * (N + V)]
        kv = kv.reshape(*kv.shape[:2], spec.heads, -1).transpose(0, 2, 1, 3)
        own, values = mx.split(kv, [spec.nope], axis=-1)
        whole = mx.concatenate([own, self._every_head(keys)], axis=-1)  # [B, H, L, N + T]
        view = ctx.views[cache] = ctx.kv(cache).append(whole, values)
        return view.attend(mx.concatenate([free, turned], axis=-1), spec.scale, ctx.masks)


@dataclass(frozen=True)
class SplitHeads:
    """`<at>.kv_b_proj` [H * (N + V), R] becomes `<at>.embed_q` [H, R, N] and `<at>.unembed_out` [H, V, R].

    A packed one is unpacked, cut and packed again with the bits and groups that its shapes tell, as in mlx-lm.
    """

    spec: LatentSpec

    def __call__(self, arrays: Arrays) -> Arrays:
        made = dict(arrays)
        for key in arrays:
            if key.endswith(".kv_b_proj.weight"):
                at = key.removesuffix("kv_b_proj.weight")
                scales, biases = (made.pop(f"{at}kv_b_proj.{part}", None) for part in ("scales", "biases"))
                made |= self._cut(at, made.pop(key), scales, biases)
        return made

    def _cut(self, at: str, weight: mx.array, scales: mx.array | None, biases: mx.array | None) -> Arrays:
        bits = group = 0
        if scales is not None:
            bits, group = weight.shape[-1] * 32 // self.spec.rank, self.spec.rank // scales.shape[-1]
            weight = mx.dequantize(weight, scales, biases, group_size=group, bits=bits)
        keys, values = mx.split(weight.reshape(self.spec.heads, -1, self.spec.rank), [self.spec.nope], axis=1)
        made: Arrays = {}
        for name, part in (("embed_q", keys.swapaxes(-1, -2)), ("unembed_out", values)):
            part = mx.contiguous(part)
            packed = [part] if scales is None else mx.quantize(part, group_size=group, bits=bits)
            kinds = ("weight", "scales", "biases")[: len(packed)]
            made |= {f"{at}{name}.{kind}": array for kind, array in zip(kinds, packed, strict=True)}
        return made
