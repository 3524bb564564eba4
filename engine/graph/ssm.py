"""Mamba-2: a state of one matrix a head, in the blockwise form for many tokens at once.

Letters: B rows, L length, S tokens of a block, D model dimension, H heads, P values of a head, G groups of heads,
N state size, C channels of the convolution, H*P + 2*G*N.

In each head, with rate < 0: state_t [P, N] = exp(dt_t rate) state_(t-1) + dt_t x_t b_t^T, y_t = state_t c_t + skip x_t.
Order of operations of the blockwise form as in mlx-lm 0.32.2 (models/ssm.py); compiled where it is compiled there. Its
small steps are kept too (two swaps of axes, reshapes): with fewer of them between the large ones MLX's CPU scheduler
has more of the large ones in flight, and peak memory is 1 % higher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from engine.graph.conv import CausalConv
from engine.graph.forward import Forward
from engine.graph.mlp import swiglu
from engine.graph.norms import Norm, build_norm, rms_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, NormSpec
from engine.graph.ssm_blocks import scan_blocks
from engine.kv.batched import Padding
from engine.kv.spec import CacheSpec

BLOCK = 256
STATE = CacheSpec(kind="state", slots=2, block=BLOCK)  # the convolution's past [B, W - 1, C], states [B, H, P, N]


@mx.compile
def step_sizes(dt: mx.array, bias: mx.array, low: float, high: float) -> mx.array:
    """What the projection gives, as step sizes in float32."""
    return mx.clip(nn.softplus(dt.astype(mx.float32) + bias), low, high)


def scan(
    x: mx.array,
    dt: mx.array,
    rates: mx.array,
    b: mx.array,
    c: mx.array,
    state: mx.array | None,
    padding: Padding | None = None,
) -> tuple[mx.array, mx.array | None]:
    """x [B, L, H, P], dt [B, L, H], rates [H], b, c [B, L, G, N], state [B, H, P, N] or None: y like x, the state."""
    B, L, H, _ = x.shape
    logs = dt * rates.reshape(1, 1, -1)
    if padding is not None:
        logs = logs * padding.mask[..., None]
    gained = dt.reshape(B, L, H, 1) * x
    parts = []
    for start in range(0, x.shape[1], BLOCK):
        cut = slice(start, start + BLOCK)
        within = padding
        if padding is not None:
            lengths = None if padding.lengths is None else padding.lengths - start
            within = Padding(padding.mask[:, cut], lengths)
        y, state = _block(gained[:, cut], logs[:, cut], b[:, cut], c[:, cut], state, within)
        parts.append(y.astype(x.dtype))
    return mx.concatenate(parts, axis=1), state


def _block(
    gained: mx.array, logs: mx.array, b: mx.array, c: mx.array, state: mx.array | None, padding: Padding | None
) -> tuple[mx.array, mx.array]:
    """A block as attention whose scores decay, on top of what the state of the blocks before it gives. padding: of its
    tokens, lengths from its first."""
    B, S, H, P = gained.shape
    G, N = b.shape[2:]
    heads = H // G
    columns = b.transpose(0, 2, 3, 1)  # [B, G, N, S]
    scores = mx.repeat(c.swapaxes(1, 2) @ columns, heads, axis=1)  # [B, H, S, S]
    each = logs.swapaxes(1, 2)  # [B, H, S]
    if padding is not None:
        each = each * padding.mask[:, None]
    spread = mx.repeat(each[..., None], S, axis=-1)  # [B, H, S, S]
    summed = mx.cumsum(mx.tril(spread, -1), axis=-2)
    if padding is not None:
        counts = padding.mask[:, None]  # [B, 1, S]
        summed = mx.where(counts[..., None, :] * counts[..., None], summed, -float("inf"))
    decay = mx.exp(summed)  # [i, j]: what is left of token j at token i
    y = (mx.tril(scores * decay) @ gained.swapaxes(1, 2)).swapaxes(1, 2)  # [B, S, H, P]
    lengths = None if padding is None else padding.lengths
    if lengths is None:
        last = decay[:, :, -1:, :]  # [B, H, 1, S]
    else:
        place = mx.maximum(mx.minimum(lengths, BLOCK) - 1, 0)
        last = mx.take_along_axis(decay, mx.expand_dims(place, (1, 2, 3)), axis=2)
    at_end = last.transpose(0, 3, 1, 2)  # [B, S, H, 1]
    rows = mx.repeat(columns, heads, axis=1).swapaxes(2, 3)  # [B, H, S, N]
    after = (gained * at_end).swapaxes(1, 2).swapaxes(2, 3) @ rows  # [B, H, P, N]
    if state is None:
        return y, after
    faded = mx.exp(mx.cumsum(logs, axis=-2))  # [B, S, H]
    seen = state.reshape(B, 1, G, heads, P, N) @ c.reshape(B, S, G, 1, N, 1)  # [B, S, G, H/G, P, 1]
    y = y + faded[..., None] * seen.squeeze(-1).flatten(2, 3)
    after = after + faded[:, -1, :, None, None] * state
    if lengths is not None:
        after = mx.where(mx.expand_dims(lengths < 0, (1, 2, 3)), state, after)
    return y, after


def scan_plain(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array | None]:
    """The same token by token, as the definition has it."""
    heads = x.shape[2] // b.shape[2]
    kept, gained = mx.exp(dt * rates)[..., None, None], (dt[..., None] * x)[..., None]
    rows, columns = (mx.repeat(part, heads, axis=2)[..., None, :] for part in (b, c))  # [B, L, H, 1, N]
    steps = []
    for t in range(x.shape[1]):
        entered = gained[:, t] * rows[:, t]  # [B, H, P, N]
        state = entered if state is None else kept[:, t] * state + entered
        steps.append((state * columns[:, t]).sum(axis=-1))
    return mx.stack(steps, axis=1).astype(x.dtype), state


class Recurrence:
    """The parameters of the states under `path`: A_log, D, dt_bias, each [H]."""

    def __init__(
        self, heads: int, limits: tuple[float, float], cast_skip: bool, plain: bool, weights: Weights, path: str
    ) -> None:
        self.limits, self.cast_skip = limits, cast_skip
        self.scan = scan_blocks if weights.training else scan_plain if plain else scan
        self.rates = -mx.exp(weights.take(f"{path}.A_log", (heads,))).astype(mx.float32)
        self.skip, self.bias = weights.take(f"{path}.D", (heads,)), weights.take(f"{path}.dt_bias", (heads,))

    def __call__(
        self,
        x: mx.array,
        dt: mx.array,
        b: mx.array,
        c: mx.array,
        state: mx.array | None,
        padding: Padding | None = None,
    ) -> tuple[mx.array, mx.array | None]:
        """x [B, L, H, P], dt [B, L, H] as projected, b and c [B, L, G, N] -> [B, L, H*P], the state. padding: of the
        form that serves, and no other."""
        behind = () if padding is None else (padding,)
        y, state = self.scan(x, step_sizes(dt, self.bias, *self.limits), self.rates, b, c, state, *behind)
        skip = self.skip.astype(x.dtype) if self.cast_skip else self.skip
        return (y + x * skip.reshape(1, 1, -1, 1)).flatten(2), state


@dataclass(frozen=True, kw_only=True)
class SsmSpec:
    """One projection gives [gate | x, b, c | dt]; x, b and c pass a convolution of `width` tokens.

    limits: of the step sizes. cast_skip: D is cast to the values' dtype. norm: on the output, after the gate or
    ("norm_first") before it; norm_groups: over each of so many parts, the weight outside. plain: token by token.
    """

    heads: int
    head_dim: int
    state: int
    groups: int
    width: int
    conv_bias: bool
    in_bias: bool
    out_bias: bool
    limits: tuple[float, float]
    cast_skip: bool = False
    norm: NormSpec | None = None
    norm_first: bool = False
    norm_groups: int | None = None
    plain: bool = False
    caches: tuple[CacheSpec, ...] = (STATE,)


class Ssm:
    def __init__(self, spec: SsmSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec = spec
        inner, shared = spec.heads * spec.head_dim, spec.groups * spec.state
        self.cuts, self.mixed_cuts = [inner, 2 * inner + 2 * shared], [inner, inner + shared]
        width = self.cuts[1] + spec.heads
        self.project = weights.linear(f"{path}.in_proj", width, arch.dim, spec.in_bias)
        self.conv = CausalConv(weights, f"{path}.conv1d", inner + 2 * shared, spec.width, spec.conv_bias)
        self.recurrence = Recurrence(spec.heads, spec.limits, spec.cast_skip, spec.plain, weights, path)
        self.norm = _grouped(spec, weights, path) if spec.norm else None
        self.out = weights.linear(f"{path}.out_proj", arch.dim, inner, spec.out_bias)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        """x [B, L, D] -> [B, L, D]; carries the state on in ctx.caches[cache]."""
        B, L, _ = x.shape
        memory, padding = ctx.state(cache), ctx.padding(cache)
        past, state = memory.slots
        gate, mixed, dt = mx.split(self.project(x), self.cuts, axis=-1)  # [B, L, H*P], [B, L, C], [B, L, H]
        mixed, past = self.conv(mixed, past, padding)
        values, b, c = mx.split(nn.silu(mixed), self.mixed_cuts, axis=-1)
        values = values.reshape(B, L, self.spec.heads, self.spec.head_dim)
        b, c = (part.reshape(B, L, self.spec.groups, self.spec.state) for part in (b, c))
        y, state = self.recurrence(values, dt, b, c, state, padding)  # [B, L, H*P]
        memory.append(L, past, state)
        if self.norm is None or not self.spec.norm_first:
            y = swiglu(gate, y)
        if self.norm is not None:
            y = self.norm(y)
        return self.out(swiglu(gate, y) if self.norm is not None and self.spec.norm_first else y)


@dataclass(frozen=True, kw_only=True)
class PlamoSsmSpec:
    """One projection gives [gate | x] of each head; x passes a convolution of `width` tokens. A second projection of
    it, normalised in parts, gives [b | c | dt of `rank` values], of which a third makes the step sizes."""

    heads: int
    head_dim: int
    state: int
    rank: int
    width: int
    limits: tuple[float, float]
    eps: float
    plain: bool = False
    caches: tuple[CacheSpec, ...] = (STATE,)


class PlamoSsm:
    def __init__(self, spec: PlamoSsmSpec, arch: ArchSpec, weights: Weights, path: str) -> None:
        self.spec, inner, N = spec, spec.heads * spec.head_dim, spec.state
        self.project = weights.linear(f"{path}.in_proj", 2 * inner, arch.dim, bias=False)
        self.conv = CausalConv(weights, f"{path}.conv1d", inner, spec.width)
        self.split = weights.linear(f"{path}.bcdt_proj", spec.rank + 2 * N, inner, bias=False)
        self.step_sizes = weights.linear(f"{path}.dt_proj", spec.heads, spec.rank, bias=False)
        norms = (("B", N), ("C", N), ("dt", spec.rank))
        self.norms = [rms_norm(weights.take(f"{path}.{name}_norm_weight", (size,)), spec.eps) for name, size in norms]
        self.recurrence = Recurrence(spec.heads, spec.limits, False, spec.plain, weights, path)
        self.out = weights.linear(f"{path}.out_proj", arch.dim, inner, bias=False)

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        """x [B, L, D] -> [B, L, D]; carries the state on in ctx.caches[cache]."""
        B, L, _ = x.shape
        spec, memory, padding = self.spec, ctx.state(cache), ctx.padding(cache)
        past, state = memory.slots
        gate, values = mx.split(self.project(x).reshape(B, L, spec.heads, -1), 2, axis=-1)  # [B, L, H, P] twice
        values, past = self.conv(values.flatten(2), past, padding)
        values = nn.silu(values)
        parts = mx.split(self.split(values), [spec.state, 2 * spec.state], axis=-1)
        b, c, dt = (norm(part) for norm, part in zip(self.norms, parts, strict=True))
        values, b, c = values.reshape(gate.shape), b[:, :, None], c[:, :, None]
        y, state = self.recurrence(values, self.step_sizes(dt), b, c, state, padding)  # [B, L, H*P]
        memory.append(L, past, state)
        return self.out(swiglu(gate.flatten(2), y))


def _grouped(spec: SsmSpec, weights: Weights, path: str) -> Callable[[mx.array], mx.array]:
    """The norm of the output [B, L, H*P]."""
    assert spec.norm is not None
    width, groups, eps = spec.heads * spec.head_dim, spec.norm_groups, spec.norm.eps
    if groups is None:
        norm: Norm = build_norm(spec.norm, width, weights, path)
        return norm
    weight = weights.take(f"{path}.{spec.norm.key}.weight", (width,))
    return lambda y: weight * mx.fast.rms_norm(mx.unflatten(y, -1, (groups, -1)), None, eps).flatten(-2)
