"""A lever: one token in fewer operations, or fewer of Python's, with the bits of MLX's own.

Where one token goes through, the two halves of a layer around its attention are traces. On a CPU, where MLX composes
`mx.fast.rope` and the norms of a dozen or two small operations, and a step of a small model spends most of its time
between them, the sines of an offset are made once for all layers, by `mx.fast.rope` itself, and each norm is a trace
too. Longer calls stay as they are: with fewer small operations between the large ones MLX has more of the large ones
in flight, and peak memory is up to 8 % higher. On a CPU a step's layers start as they are built
(`Decoder.forward_hidden`): MLX holds a hundred operations at most, and waits where a step has more.

On a GPU ropes and norms are kernels and stay. What traces save there is the host's time, which is the limit of small
models (reports/linux-x86_64-cuda-sm90): a trace takes the offset as an array, which `mx.fast.rope` makes of it anyway.

A trace may contract a product and a sum where the machine can. For an x86-64 CPU MLX compiles without it, and traces
keep their bits; tests/engine/test_lean.py compares both with MLX's. On CUDA it rounds once where a layer adds a product
to something (`adds_products`), and such layers stay whole. Measured on one H200 (mlx 0.32.4; tokens and
log-probabilities, every layer divided that may be on a CPU): of 215 of `oracles.recipes` in bf16 and float32 those with
such a sum differed from `ops=mlx`, 19, and no other; of 28 in 4 bit one of these, while four with experts are not equal
to themselves there. What is between the halves, keys, masks and attention, is as without them: no trace knows how many
keys there are, or how they are kept.

Letters: B rows, H heads, L length, D head dimension, R rotated dimensions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import mlx.core as mx

from engine.errors import InvalidValue
from engine.graph.attention import Attention, Heads
from engine.graph.decoder import Decoder
from engine.graph.experts import Moe
from engine.graph.forward import Forward, Positionwise
from engine.graph.layers import Layer
from engine.graph.mixtures import BlendedMoe
from engine.graph.modules import modules
from engine.graph.norms import Norm
from engine.graph.rope import Angles, Rope
from engine.graph.shortcut import IdentityMoe
from engine.kv.base import Offset


def unfit_for_lean(device: str, arch: str) -> str:
    """Why this machine keeps MLX's operations; "" where it need not. arch: as `platform.machine()` says."""
    if arch == "x86_64" and device in ("cpu", "cuda"):
        return ""
    return f"bits were measured equal on an x86_64 CPU and on CUDA beside one, this is {arch} {device}"


def lean(decoder: Decoder, device: str) -> None:
    """Let the halves of a decoder's layers run as traces; on a CPU all its ropes share their tables, and its norms are
    traces too. `InvalidValue` on a GPU, where nobody has it unasked, for a model without such layers."""
    parts = vars(decoder).values()
    if device != "cpu":
        offsets, layers = OffsetArrays(), [x for x in modules(parts, (Layer,)) if divisible_on_gpu(x)]
        if not layers:
            raise InvalidValue("ops", "lean", "mlx: no layer of this model runs in halves on a GPU")
        for layer in layers:
            layer.halves = Halves(layer, offsets)
        return
    tables = Tables()
    for module in modules(parts, (Rope, Norm, Layer)):
        if isinstance(module, Rope):
            module.turned = tables.turned
        elif isinstance(module, Norm):
            module.compute, module.traced = _traced(module.compute), True
        elif divisible(module):
            module.halves = Halves(module, tables)


def count_lean(decoder: Decoder) -> int:
    """How many ropes, norms and layers run so."""
    parts = vars(decoder).values()
    ropes, layers = modules(parts, (Rope,)), modules(parts, (Layer,))
    changed = sum(rope.turned is not None for rope in ropes) + sum(layer.halves is not None for layer in layers)
    return changed + sum(norm.traced for norm in modules(parts, (Norm,)))


def divisible(layer: Layer) -> bool:
    """Whether attention is all that keeps a layer from being a function of its x and of angles."""
    attention, mlp = layer.attention, layer.mlp
    if not (isinstance(attention, Attention) and attention.spec.lone):
        return False
    return mlp is None or isinstance(mlp, Positionwise)


def divisible_on_gpu(layer: Layer) -> bool:
    """The same on a GPU: the place of a token is an array there, not the number that a growing base needs."""
    if not divisible(layer) or adds_products(layer):
        return False
    assert isinstance(layer.attention, Attention)
    return layer.attention.rope is None or not layer.attention.rope.grows


def adds_products(layer: Layer) -> bool:
    """Whether it adds a product of two numbers to something, so that one operation might round both at once."""
    spec, mlp = layer.spec, layer.mlp
    if spec.residual_scale is not None or any(norm and norm.kind == "gain" for norm in vars(spec.norms).values()):
        return True
    if isinstance(mlp, Moe):
        return mlp.shared_gate is not None or mlp.spec.scale is not None
    return isinstance(mlp, (BlendedMoe, IdentityMoe))


class Halves:
    """A layer of one token: a trace up to its attention, the attention, a trace behind it. The layer owns them, so that
    they know it by a weak reference, and go when it goes."""

    def __init__(self, layer: Layer, places: Tables | OffsetArrays) -> None:
        assert isinstance(layer.attention, Attention)
        known: Any = weakref.proxy(layer)
        self._layer, self._attention, self._places = known, layer.attention, places
        self._before = mx.compile(partial(_before, known, layer.attention))
        self._behind = mx.compile(partial(_behind, known, layer.attention))
        self._turned: dict[mx.Dtype, set[mx.Dtype]] = {}  # of x -> of what the rope turns

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        attention = self._attention
        place = self._place(x, ctx.caches[cache].offset)
        if place is None:
            h = self._layer.enter(x)
            return self._layer.leave(x, h, attention(h, ctx, cache), ctx, cache)
        h, queries, keys, values, *gate = self._before(x, *place)
        view = attention.store(Heads(queries, keys, values, None), ctx, cache)
        out: mx.array = self._behind(x, h, attention.attend(queries, view, ctx), *gate)
        return out

    def _place(self, x: mx.array, offset: Offset) -> tuple[mx.array, ...] | None:
        """What a trace takes of an offset, None where tables would be of two dtypes."""
        places, rope = self._places, self._attention.rope
        if rope is None:
            return ()
        if isinstance(places, OffsetArrays):
            return (places.array(offset),)
        turned = self._turned.get(x.dtype)
        if turned is None:
            with places.noted() as turned:
                self._attention.heads(self._layer.enter(x), offset)
            self._turned[x.dtype] = turned
        return places.angles(rope, next(iter(turned)), offset) if len(turned) == 1 else None


def _before(layer: Layer, attention: Attention, x: mx.array, *place: mx.array) -> tuple[mx.array, ...]:
    """x [B, 1, D] -> what attention takes of it, queries, keys, values, and the gate where there is one. place: the
    angles of its rope, or an offset."""
    at: Offset | Angles = Angles(*place) if len(place) > 1 else place[0] if place else 0
    h = layer.enter(x)
    return h, *(part for part in attention.heads(h, at) if part is not None)


def _behind(
    layer: Layer, attention: Attention, x: mx.array, h: mx.array, attended: mx.array, gate: mx.array | None = None
) -> mx.array:
    """What the layer makes of x, of `_before` and of what attention found [B, H, 1, E]."""
    return layer.leave(x, h, attention.output(attended, h, gate), None, 0)


@cache
def _traced(compute: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """The same, as a trace where x is of one token."""
    trace = mx.compile(compute, shapeless=True)

    def run(x: mx.array, *arrays: mx.array) -> mx.array:
        out: mx.array = (trace if x.ndim > 2 and x.shape[1] == 1 else compute)(x, *arrays)
        return out

    return run


class OffsetArrays:
    """The offset that was asked last, as an array."""

    def __init__(self) -> None:
        self._offset, self._array = -1, mx.array(-1)

    def array(self, offset: Offset) -> mx.array:
        """That of all rows [], or those of each [B], int32."""
        if isinstance(offset, mx.array):
            return offset
        if offset != self._offset:
            self._offset, self._array = offset, mx.array(offset, mx.int32)
        return self._array


class Tables:
    """Cosines and sines of the offset that was asked last, for each kind of rope."""

    def __init__(self) -> None:
        self._offset: Offset = -1
        self._made: dict[tuple[object, ...], Angles] = {}
        self._noted: set[mx.Dtype] | None = None

    @contextmanager
    def noted(self) -> Iterator[set[mx.Dtype]]:
        """The dtypes of what is turned while this lasts."""
        self._noted = set()
        try:
            yield self._noted
        finally:
            self._noted = None

    def turned(self, rope: Rope, x: mx.array, at: Offset | Angles) -> mx.array:
        """What `rope.turn` makes of x [B, H, L, D]; `at`: its offset, or `angles` of one token there."""
        if not isinstance(at, Angles):
            if x.ndim != 4 or x.shape[2] > 1:
                return rope.turn(x, at)
            if self._noted is not None:
                self._noted.add(x.dtype)
            at = self.angles(rope, x.dtype, at)
        y = x if rope.dims == x.shape[-1] else x[..., : rope.dims]
        if rope.traditional:
            y = mx.unflatten(y, -1, (-1, 2))  # [B, H, L, R/2, 2]
            y = mx.flatten(y * at.cos + _swapped(y, 1) * at.sin, -2)
        else:
            y = y * at.cos + _swapped(y, rope.dims // 2) * at.sin
        return y if rope.dims == x.shape[-1] else mx.concatenate([y, x[..., rope.dims :]], axis=-1)

    def angles(self, rope: Rope, dtype: mx.Dtype, offset: Offset) -> Angles:
        """Those of one token, as they lie over x [B, H, 1, R] of that dtype or its pairs."""
        same = offset is self._offset if isinstance(offset, mx.array) else isinstance(self._offset, int)
        if not same or (isinstance(offset, int) and offset != self._offset):
            self._offset, self._made = offset, {}
        rows = offset.size if isinstance(offset, mx.array) else 1
        key = rope.key, rows, dtype
        if key not in self._made:
            self._made[key] = _table(rope, (rows, 1, 1, rope.dims // 2), dtype, offset)
        return self._made[key]


def _table(rope: Rope, shape: tuple[int, ...], dtype: mx.Dtype, offset: Offset) -> Angles:
    """What rope makes of pairs (1, 0): (cos, sin), for 1 * cos - 0 * sin and 1 * sin + 0 * cos are just these."""
    one, none = mx.ones(shape, dtype), mx.zeros(shape, dtype)
    if rope.traditional:
        turned = rope.turn(mx.flatten(mx.stack([one, none], axis=-1), -2), offset)
        cos, sin = turned[..., 0::2], turned[..., 1::2]
        return Angles(mx.stack([cos, cos], axis=-1), mx.stack([-sin, sin], axis=-1))
    cos, sin = mx.split(rope.turn(mx.concatenate([one, none], axis=-1), offset), 2, axis=-1)
    return Angles(mx.concatenate([cos, cos], axis=-1), mx.concatenate([-sin, sin], axis=-1))


def _swapped(x: mx.array, half: int) -> mx.array:
    """The last axis with what is before `half` behind the rest."""
    return mx.concatenate([x[..., half:], x[..., :half]], axis=-1)
