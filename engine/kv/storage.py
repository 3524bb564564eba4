"""How the rows of keys, or of values, are stored: in the model's dtype, or packed.

Letters: B rows, K key/value heads, L tokens, D head dimension. A `Storage` turns x [B, K, L, D] into parts, arrays
[B, K, L, ...] with the tokens on axis 2. A token's parts depend on that token alone, so packing a filled buffer and
packing token by token give the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx

Parts = tuple[mx.array, ...]


class Storage(ABC):
    """One side of a scheme. `count`: arrays in its parts; `bits`: per value, None where values are kept as they are.

    block: tokens that are packed at a time when a filled cache is converted, so that its peak stays near what it holds.
    """

    block: ClassVar[int] = 1024
    count: int
    bits: int | None
    group_size: int | None

    @abstractmethod
    def pack(self, x: mx.array) -> Parts:
        """x [B, K, L, D] as it is stored."""

    @abstractmethod
    def unpack(self, parts: Parts) -> mx.array:
        """What the parts stand for, [B, K, L, D]: in the dtype that was packed, or float32 if parts do not keep it."""


@dataclass(frozen=True)
class Native(Storage):
    """As they come."""

    count = 1
    bits = None
    group_size = None

    def pack(self, x: mx.array) -> Parts:
        return (x,)

    def unpack(self, parts: Parts) -> mx.array:
        return parts[0]


@dataclass(frozen=True)
class Affine(Storage):
    """Integers of `bits` with a scale and a bias for each group of D (mx.quantize, as mlx-lm's QuantizedKVCache)."""

    bits: int
    group_size: int
    count = 3

    def pack(self, x: mx.array) -> Parts:
        packed, scales, biases = mx.quantize(x, group_size=self.group_size, bits=self.bits)
        return packed, scales, biases

    def unpack(self, parts: Parts) -> mx.array:
        packed, scales, biases = parts
        return mx.dequantize(packed, scales, biases, group_size=self.group_size, bits=self.bits)
