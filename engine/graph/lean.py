"""A lever: rotations and norms on a CPU in fewer operations, with the bits of MLX's own.

On a CPU MLX composes `mx.fast.rope` and the norms of a dozen or two small operations, and a step of a small model
spends most of its time between them. Where one token goes through, the sines of an offset are made once for all layers
here, by `mx.fast.rope` itself, and a norm is a trace. Longer calls stay as they are: with fewer small operations
between the large ones MLX has more of the large ones in flight, and peak memory is up to 8 % higher.

A trace may contract a product and a sum where the machine can, so that norms keep their bits on x86-64, for which MLX
compiles without it; tests/engine/test_lean.py compares both with MLX's.

Letters: B rows, H heads, L length, D head dimension, R rotated dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.graph.modules import modules
from engine.graph.norms import Norm
from engine.graph.rope import Rope
from engine.kv.base import Offset


def unfit_for_lean(device: str, arch: str) -> str:
    """Why this machine keeps MLX's operations; "" where it need not. arch: as `platform.machine()` says."""
    if (device, arch) == ("cpu", "x86_64"):
        return ""
    return f"bits were measured equal on an x86_64 CPU, this is {arch} {device}"


def lean(decoder: Decoder) -> None:
    """Let all ropes of a decoder share their tables, and its norms run as traces."""
    tables = Tables()
    for module in modules(vars(decoder).values(), (Rope, Norm)):
        if isinstance(module, Rope):
            module.turned = tables.turned
        else:
            module.compute, module.traced = _traced(module.compute), True


def count_lean(decoder: Decoder) -> int:
    """How many ropes and norms run so."""
    found = modules(vars(decoder).values(), (Rope, Norm))
    return sum(part.turned is not None if isinstance(part, Rope) else part.traced for part in found)


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
        self._made: dict[tuple[object, ...], tuple[mx.array, mx.array]] = {}

    def turned(self, rope: Rope, x: mx.array, offset: Offset) -> mx.array:
        """What `rope.turn` makes of x [B, H, L, D]."""
        if x.ndim != 4 or x.shape[2] > 1:
            return rope.turn(x, offset)
        cos, sin = self._of(rope, x, offset)
        y = x if rope.dims == x.shape[-1] else x[..., : rope.dims]
        if rope.traditional:
            y = mx.unflatten(y, -1, (-1, 2))  # [B, H, L, R/2, 2]
            y = mx.flatten(y * cos + _swapped(y, 1) * sin, -2)
        else:
            y = y * cos + _swapped(y, rope.dims // 2) * sin
        return y if rope.dims == x.shape[-1] else mx.concatenate([y, x[..., rope.dims :]], axis=-1)

    def _of(self, rope: Rope, x: mx.array, offset: Offset) -> tuple[mx.array, mx.array]:
        """Cosines, and sines with the sign that they take, as they lie over x [B, H, L, R] or its pairs."""
        same = offset is self._offset if isinstance(offset, mx.array) else isinstance(self._offset, int)
        if not same or (isinstance(offset, int) and offset != self._offset):
            self._offset, self._made = offset, {}
        rows = offset.size if isinstance(offset, mx.array) else 1
        key = rope.key, rows, x.shape[2], x.dtype
        if key not in self._made:
            self._made[key] = _table(rope, (rows, 1, x.shape[2], rope.dims // 2), x.dtype, offset)
        return self._made[key]


def _table(rope: Rope, shape: tuple[int, ...], dtype: mx.Dtype, offset: Offset) -> tuple[mx.array, mx.array]:
    """What rope makes of pairs (1, 0): (cos, sin), for 1 * cos - 0 * sin and 1 * sin + 0 * cos are just these."""
    one, none = mx.ones(shape, dtype), mx.zeros(shape, dtype)
    if rope.traditional:
        turned = rope.turn(mx.flatten(mx.stack([one, none], axis=-1), -2), offset)
        cos, sin = turned[..., 0::2], turned[..., 1::2]
        return mx.stack([cos, cos], axis=-1), mx.stack([-sin, sin], axis=-1)
    cos, sin = mx.split(rope.turn(mx.concatenate([one, none], axis=-1), offset), 2, axis=-1)
    return mx.concatenate([cos, cos], axis=-1), mx.concatenate([-sin, sin], axis=-1)


def _swapped(x: mx.array, half: int) -> mx.array:
    """The last axis with what is before `half` behind the rest."""
    return mx.concatenate([x[..., half:], x[..., :half]], axis=-1)
