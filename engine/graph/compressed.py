"""Attention to a window of keys and, further back, to compressed groups of tokens that an indexer picks.

A layer may make the compressed keys, or pick among them, for the layers behind it that do not: ctx.extras holds the
"compressed" keys [B, N, E], their "index" keys [B, N, F], the "picked" ones [B, L, P] (-1: none) and the "candidates"
[B, L, N] that later indexers choose from. Keys are values, and are rounded to small floats before they are kept.

Letters: B rows, L length, D model dimension, H heads, E head dimension, I index heads, F index head dimension, W kept
rows of the window, N compressed groups, P picked keys, G groups of the output's projection. Order of operations as in
mlx-lm 0.32.2 (models/deepseek_v41.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.minifloat import rounded_fp4, rounded_fp8
from engine.graph.norms import rms_norm
from engine.graph.params import Weights
from engine.graph.rope import yarn_freqs
from engine.graph.spec import ArchSpec, RopeSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class IndexerSpec:
    """`heads` of `dim` values rank the groups; `top` of them are picked. makes_keys: of the groups, in this layer.

    candidates: (blocks, size): it also picks that many blocks of so many groups for the indexers behind it.
    """

    heads: int
    dim: int
    top: int
    makes_keys: bool
    candidates: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class CompressedSpec:
    """`heads` of `dim` values share one key a token; `window` keys are seen, and groups of `ratio` tokens (0: none).

    makes: whether the layer makes the groups itself. q_rank: of the queries; groups, o_rank: of the output's
    projection, a map for each group of heads. rope: frequencies of yarn, on the last values of a head.
    """

    heads: int
    dim: int
    q_rank: int
    groups: int
    o_rank: int
    eps: float
    rope: RopeSpec
    window: int
    ratio: int
    makes: bool
    indexer: IndexerSpec | None

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """Window, compressed keys, their index keys, and the keys and gates of the group that is not full."""
        return (CacheSpec(kind="state", slots=5, block=None, grows=True),)


def joined(old: mx.array | None, new: mx.array) -> mx.array:
    return new if old is None else mx.concatenate([old, new], axis=1)


def share(ctx: Forward, name: str, value: mx.array | None) -> None:
    """Put `value` in place of what an earlier layer shared."""
    if value is None:
        ctx.extras.pop(name, None)
    else:
        ctx.extras[name] = value


class Turn:
    """The rope: pairs of neighbours among the last values, in float32. Groups count positions in units of `scale`."""

    def __init__(self, spec: RopeSpec) -> None:
        self.dims, self.freqs = spec.dims, yarn_freqs(spec, dict(spec.scaling))

    def __call__(self, x: mx.array, offset: int, scale: float = 1.0, back: bool = False) -> mx.array:
        """x [B, L, E] or [B, L, H, E]. back: the opposite way."""
        still, tail = x[..., : -self.dims], x[..., -self.dims :].astype(mx.float32)
        tail = tail.swapaxes(1, 2) if x.ndim == 4 else tail
        freqs = -self.freqs if back else self.freqs
        tail = mx.fast.rope(tail, self.dims, traditional=True, base=None, scale=scale, offset=offset, freqs=freqs)
        tail = tail.swapaxes(1, 2) if x.ndim == 4 else tail
        return mx.concatenate([still, tail.astype(x.dtype)], axis=-1)


class Compressor:
    """Groups of tokens pooled into one key each, by a softmax over a gate."""

    def __init__(self, spec: CompressedSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.ratio = spec.ratio
        self.kv = weights.linear(f"{path}.kv_proj", spec.dim, arch.dim, bias=False)
        self.gate = weights.linear(f"{path}.gate_proj", spec.dim, arch.dim, bias=False) if spec.ratio > 1 else None
        self.norm = rms_norm(weights.take(f"{path}.kv_norm.weight", (spec.dim,)), spec.eps)

    def __call__(
        self, x: mx.array, open_kv: mx.array | None, open_gate: mx.array | None
    ) -> tuple[mx.array | None, mx.array | None, mx.array | None]:
        """x [B, L, D] behind the rows of the open group -> the groups [B, N, E] that are full now, the open rows."""
        if self.gate is None:
            return self.norm(self.kv(x)), None, None
        wide = x.astype(mx.float32)
        kv, gate = joined(open_kv, self.kv(wide)), joined(open_gate, self.gate(wide))
        full = kv.shape[1] // self.ratio * self.ratio
        open_kv, open_gate = kv[:, full:], gate[:, full:]
        if not full:
            return None, open_kv, open_gate
        kv, gate = (mx.unflatten(a[:, :full], 1, (-1, self.ratio)) for a in (kv, gate))
        pooled = mx.sum(kv * mx.softmax(gate, axis=2), axis=2)
        return self.norm(pooled.astype(x.dtype)), open_kv, open_gate


class Indexer:
    def __init__(self, spec: IndexerSpec, outer: CompressedSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec, self.ratio = spec, outer.ratio
        self.q = weights.linear(f"{path}.q_b_proj", spec.heads * spec.dim, outer.q_rank, bias=False)
        self.weigh = weights.linear(f"{path}.weights_proj", spec.heads, arch.dim, bias=False)
        if spec.makes_keys:
            self.k = weights.linear(f"{path}.k_proj", spec.dim, outer.dim, bias=False)
            self.k_norm = rms_norm(weights.take(f"{path}.k_norm.weight", (spec.dim,)), outer.eps)

    def keys(self, groups: mx.array, first: int, turn: Turn) -> mx.array:
        """Groups [B, N, E], the first of which is number `first`, -> index keys [B, N, F]."""
        return rounded_fp4(turn(self.k_norm(self.k(groups)), first, self.ratio), 32)

    def __call__(self, x: mx.array, low: mx.array, ctx: Forward, offset: int, turn: Turn) -> mx.array:
        """x [B, L, D] and the queries' low-rank form -> the picked groups [B, L, P], -1 where there is none."""
        spec, keys = self.spec, ctx.extras.get("index")
        B, L, _ = x.shape
        narrowed = None if spec.candidates else ctx.extras.get("candidates")
        if spec.candidates:
            share(ctx, "candidates", None)
        if keys is None or not keys.shape[1]:
            return mx.zeros((B, L, 0), dtype=mx.int32)
        queries = rounded_fp4(turn(self.q(low).reshape(B, L, spec.heads, -1), offset), 32)
        weights = self.weigh(x).astype(mx.float32) * spec.heads**-0.5  # [B, L, I]
        scores = queries.astype(mx.float32) @ keys.astype(mx.float32)[:, None].swapaxes(-1, -2)  # [B, L, I, N]
        scores = mx.maximum(scores, 0.0) * spec.dim**-0.5
        scores = mx.sum(scores * weights[..., None], axis=2)  # [B, L, N]
        full = ((mx.arange(L) + offset + 1) // self.ratio)[:, None]  # groups that end at or before each query
        scores = mx.where(mx.arange(keys.shape[1]) < full, scores, -mx.inf)
        if spec.candidates:
            share(ctx, "candidates", candidates(scores, full, *spec.candidates))
        elif narrowed is not None:
            scores = mx.where(narrowed, scores, -mx.inf)
        top = min(spec.top, keys.shape[1])
        picked = mx.argpartition(-scores, top - 1, axis=-1)[..., :top].astype(mx.int32)
        return mx.where(picked < full, picked, -1)


def candidates(scores: mx.array, full: mx.array, blocks: int, size: int) -> mx.array:
    """Scores [B, L, N] of which each query sees the first `full` [L, 1] -> the groups in its best blocks, boolean.

    The newest block is always kept: it is not full, so an older one may rank higher.
    """
    N = scores.shape[-1]
    padded = mx.pad(scores, [(0, 0), (0, 0), (0, -N % size)], constant_values=-mx.inf)
    best = mx.unflatten(padded, -1, (-1, size)).max(axis=-1)
    newest = mx.where(full > 0, (full - 1) // size, -1)
    best = mx.where(mx.arange(best.shape[-1]) == newest, mx.inf, best)
    count = min(blocks, best.shape[-1])
    chosen = mx.argpartition(-best, count - 1, axis=-1)[..., :count]
    # Where fewer blocks are in sight than `count`, the others are -inf.
    real = mx.take_along_axis(best, chosen, axis=-1) > -mx.inf
    kept = mx.put_along_axis(mx.zeros(best.shape, dtype=mx.bool_), chosen, real, axis=-1)
    return mx.repeat(kept, size, axis=-1)[..., :N]


def window_rows(held: int, length: int, window: int) -> mx.array:
    """The rows [L, W] that each query sees, -1 for none, of `held` rows and `length` new ones behind them."""
    own = (mx.arange(length) + held)[:, None]
    rows = mx.maximum(own - window + 1, 0) + mx.arange(min(window, held + length))
    return mx.where(rows > own, -1, rows)


def rows_at(values: mx.array, rows: mx.array) -> mx.array:
    """Rows [B, L, P] of values [B, N, E]: [B, L, P, E]; -1 reads the first one."""
    B, N, E = values.shape
    flat = mx.maximum(rows, 0) + (mx.arange(B) * N).reshape(B, 1, 1)
    return values.reshape(B * N, E)[flat.reshape(-1)].reshape(*rows.shape, E)


class CompressedAttention:
    """x [B, L, D] -> [B, L, D]; its state in caches[cache]."""

    def __init__(self, spec: CompressedSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        H, E, R = spec.heads, spec.dim, spec.q_rank
        self.q_a = weights.linear(f"{path}.q_a_proj", R, arch.dim, bias=False)
        self.q_norm = rms_norm(weights.take(f"{path}.q_a_norm.weight", (R,)), spec.eps)
        self.q_b = weights.linear(f"{path}.q_b_proj", H * E, R, bias=False)
        self.kv = weights.linear(f"{path}.kv_proj", E, arch.dim, bias=False)
        self.kv_norm = rms_norm(weights.take(f"{path}.kv_norm.weight", (E,)), spec.eps)
        self.o_a = weights.experts(f"{path}.o_a_proj", spec.groups, spec.o_rank, H * E // spec.groups, bias=False)
        self.o_b = weights.linear(f"{path}.o_b_proj", arch.dim, spec.groups * spec.o_rank, bias=False)
        self.sinks = weights.take(f"{path}.sinks", (H,))
        self.compressor = Compressor(spec, arch, weights, f"{path}.compressor") if spec.makes else None
        self.indexer = Indexer(spec.indexer, spec, arch, weights, f"{path}.indexer") if spec.indexer else None
        self.turn = Turn(spec.rope)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        spec, state, turn = self.spec, ctx.lone_state(cache), self.turn
        B, L, _ = x.shape
        offset, (window, groups, index, *rest) = state.offset, state.slots
        low = self.q_norm(self.q_a(x))
        queries = turn(self.q_b(low).reshape(B, L, spec.heads, -1), offset)
        held = 0 if window is None else window.shape[1]
        window = joined(window, rounded_fp8(turn(self.kv_norm(self.kv(x)), offset)))
        seen = window_rows(held, L, spec.window)
        keys, rows = [window], [mx.broadcast_to(seen, (B, *seen.shape))]
        if self.compressor is not None:
            first = (offset - (0 if rest[0] is None else rest[0].shape[1])) // spec.ratio
            new, *rest = self.compressor(x, *rest)
            if new is not None:
                groups = joined(groups, rounded_fp4(turn(new, first, spec.ratio), 16, e4m3=True))
                if self.indexer is not None:
                    index = joined(index, self.indexer.keys(new, first, turn))
            share(ctx, "compressed", groups)
            if self.indexer is not None:
                share(ctx, "index", index)
        if self.indexer is not None:
            ctx.extras["picked"] = self.indexer(x, low, ctx, offset, turn)
        picked = ctx.extras.get("picked")
        if spec.ratio and "compressed" in ctx.extras and picked is not None and picked.shape[-1]:
            keys.append(ctx.extras["compressed"])
            rows.append(picked)
        state.append(L, window[:, -spec.window :], groups, index, *rest)
        queries = mx.depends(queries, state.arrays())  # what no step reads would wait unevaluated for ever
        out = turn(self._attend(queries, keys, rows), offset, back=True)
        out = self.o_a(out.reshape(B * L, spec.groups, 1, -1), mx.arange(spec.groups)[None], False)
        return self.o_b(out.reshape(B, L, -1))

    def _attend(self, queries: mx.array, keys: list[mx.array], rows: list[mx.array]) -> mx.array:
        """Queries [B, L, H, E] to the rows [B, L, P] of each of the keys [B, N, E], in float32: [B, L, H, E].

        Each query has keys of its own, so it is a row of a batch.
        """
        B, L, H, E = queries.shape
        own = mx.concatenate([rows_at(k, r) for k, r in zip(keys, rows, strict=True)], axis=2)
        own = own.reshape(B * L, 1, -1, E).astype(mx.float32)
        out = mx.fast.scaled_dot_product_attention(
            queries.reshape(B * L, H, 1, E).astype(mx.float32),
            own,
            own,
            scale=E**-0.5,
            mask=(mx.concatenate(rows, axis=-1) >= 0).reshape(B * L, 1, 1, -1),
            sinks=self.sinks.astype(mx.float32),
        )
        return out.reshape(queries.shape).astype(queries.dtype)
