"""Packed maps whose input was rotated before they were packed (op order of mlx-lm 0.32.2,
models/prism_hadamard_qwen35.py).

Letters: O output features, I input features, S size of a block along I.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.errors import UnsupportedConfig, WeightsMismatch


def rotated(x: mx.array, signs: mx.array, back: bool = False) -> mx.array:
    """x [..., I] times signs [I/S, S], then each block of S through a normalised Walsh-Hadamard transform, in float32;
    back: the inverse."""
    flat, wide = signs.reshape(-1), x.astype(mx.float32)
    wide = wide if back else wide * flat
    block = signs.shape[-1]
    wide = mx.hadamard_transform(wide.reshape(-1, block), scale=1 / math.sqrt(block)).reshape(x.shape)
    return (wide * flat if back else wide).astype(x.dtype)


class Rotated:
    """A packed linear map [O, I] of the rotated input."""

    def __init__(self, linear: Any, signs: mx.array) -> None:
        self.linear, self.signs = linear, signs

    def __call__(self, x: mx.array) -> mx.array:
        return self.linear(rotated(x, self.signs))


@dataclass(frozen=True)
class Blocks:
    """A rule: under each name of `sizes` are a packed map and, where its block is not 0, the signs of its rotation [I],
    which get the shape [I/S, S]."""

    sizes: Mapping[str, int]

    def __call__(self, arrays: dict[str, mx.array]) -> dict[str, mx.array]:
        rotations = {f"{name}.signs": size for name, size in self.sizes.items() if size}
        missing = [key for key in (*rotations, *(f"{name}.scales" for name in self.sizes)) if key not in arrays]
        unfit = [key for key, size in rotations.items() if key in arrays and arrays[key].size % size]
        if missing or unfit:
            raise WeightsMismatch("packed modules", missing, (), unfit)
        bad = [mx.any((arrays[key] != 1) & (arrays[key] != -1)) for key in rotations]
        if bad and mx.any(mx.stack(bad)).item():
            raise UnsupportedConfig("the signs of a rotation hold other values than -1 and 1")
        return arrays | {key: arrays[key].reshape(-1, size) for key, size in rotations.items()}
