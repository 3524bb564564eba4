"""A lever: one token on a CPU in fewer operations, with the bits of MLX's own.

On a CPU MLX composes `mx.fast.rope` and the norms of a dozen or two small operations, and a step of a small model
spends most of its time between them. Where one token goes through, the sines of an offset are made once for all layers
here, by `mx.fast.rope` itself, a norm is a trace, and so are the two halves of a layer around its attention. Longer
calls stay as they are: with fewer small operations between the large ones MLX has more of the large ones in flight,
and peak memory is up to 8 % higher.

A trace may contract a product and a sum where the machine can, so that traces keep their bits on x86-64, for which MLX
compiles without it; tests/engine/test_lean.py compares both with MLX's. What is between the halves, keys, masks and
attention, is as without them: no trace knows how many keys there are, or how they are kept. A step's layers start as
they are built (`Decoder.forward_hidden`): MLX holds a hundred operations at most, and waits where a step has more.

Letters: B rows, H heads, L length, D head dimension, R rotated dimensions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import mlx.core as mx

from engine.graph.attention import Attention, Heads
from engine.graph.decoder import Decoder
from engine.graph.forward import Forward, Positionwise
from engine.graph.layers import Layer
from engine.graph.modules import modules
from engine.graph.norms import Norm
from engine.graph.rope import Angles, Rope
from engine.kv.base import Offset


def unfit_for_lean(device: str, arch: str) -> str:
    """Why this machine keeps MLX's operations; "" where it need not. arch: as `platform.machine()` says."""
    if (device, arch) == ("cpu", "x86_64"):
        return ""
    return f"bits were measured equal on an x86_64 CPU, this is {arch} {device}"


def lean(decoder: Decoder) -> None:
    """Let all ropes of a decoder share their tables, and its norms and the halves of its layers run as traces."""
    tables = Tables()
    for module in modules(vars(decoder).values(), (Rope, Norm, Layer)):
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


class Halves:
    """A layer of one token: a trace up to its attention, the attention, a trace behind it. The layer owns them, so that
    they know it by a weak reference, and go when it goes."""

    def __init__(self, layer: Layer, tables: Tables) -> None:
        assert isinstance(layer.attention, Attention)
        known: Any = weakref.proxy(layer)
        self._layer, self._attention, self._tables = known, layer.attention, tables
        self._before = mx.compile(partial(_before, known, layer.attention))
        self._behind = mx.compile(partial(_behind, known, layer.attention))
        self._turned: dict[mx.Dtype, set[mx.Dtype]] = {}  # of x -> of what the rope turns

    def __call__(self, x: mx.array, ctx: Forward, cache: int) -> mx.array:
        attention, offset = self._attention, ctx.caches[cache].offset
        if attention.rope is None:
            angles: tuple[mx.array, ...] = ()
        else:
            turned = self._turned.get(x.dtype) or self._tried(x, offset)
            if len(turned) > 1:
                h = self._layer.enter(x)
                return self._layer.leave(x, h, attention(h, ctx, cache), ctx, cache)
            angles = self._tables.angles(attention.rope, next(iter(turned)), offset)
        h, queries, keys, values, *gate = self._before(x, *angles)
        view = attention.store(Heads(queries, keys, values, None), ctx, cache)
        out: mx.array = self._behind(x, h, attention.attend(queries, view, ctx), *gate)
        return out

    def _tried(self, x: mx.array, offset: Offset) -> set[mx.Dtype]:
        """In which dtypes the rope turns queries and keys of an x like this."""
        with self._tables.noted() as dtypes:
            self._attention.heads(self._layer.enter(x), offset)
        self._turned[x.dtype] = dtypes
        return dtypes


def _before(layer: Layer, attention: Attention, x: mx.array, *angles: mx.array) -> tuple[mx.array, ...]:
    """x [B, 1, D] -> what attention takes of it, queries, keys, values, and the gate where there is one."""
    h = layer.enter(x)
    heads = attention.heads(h, Angles(*angles) if angles else 0)
    return h, *(part for part in heads if part is not None)


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
