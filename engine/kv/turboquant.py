"""TurboQuant storage: affine keys, and values that are rotated before a codebook rounds them.

Letters: B rows, K heads, L tokens, D head dimension, G groups of 32 along D. The layout is that of vllm-metal's
turboquant (keys as they are, values through signs and a Walsh-Hadamard transform), not the paper's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mlx.core as mx

from engine.kv.storage import Parts, Storage

DIMS = (64, 128, 256, 512)
GROUP = 32
SIGNS_SEED = 42
# Packing goes through some thirty arrays of a number for each value, all of which MLX may hold at once.
BLOCK = 128
# Added to a group's scale before its values are divided by it.
FLOOR = 1e-8
# The smallest positive float16: a key group's scale is no smaller, so that a key is off by half of it at most.
LEAST = 2.0**-24
# A key group's zero is about this many steps away at most, half of what float16 holds exactly: a small scale loses up
# to a third when float16 rounds it, and its zero gains as much.
MOST_STEPS = 1024
# bits -> the upper half of the centroids that round a unit normal best (Lloyd and Max; made by tests' reference).
CODEBOOKS: dict[str, list[float]] = json.loads(Path(__file__).with_name("codebooks.json").read_text("utf-8"))


def packed_bits(codes: mx.array, bits: int) -> mx.array:
    """Codes [..., D] below 2^bits as bytes [..., D * bits / 8], a little-endian stream."""
    if bits == 8:
        return codes.astype(mx.uint8)
    eight = mx.unflatten(codes.astype(mx.uint64), -1, (-1, 8)) << _shifts(bits)  # [..., D / 8, 8]
    words = eight.sum(axis=-1, keepdims=True).view(mx.uint8)  # [..., D / 8, 8], of which the lowest are in use
    return words[..., :bits].flatten(-2)


def unpacked_bits(packed: mx.array, bits: int) -> mx.array:
    """The inverse of `packed_bits`, uint32 codes [..., D]."""
    if bits == 8:
        return packed.astype(mx.uint32)
    words = mx.unflatten(packed, -1, (-1, bits))  # [..., D / 8, bits]
    words = mx.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, 8 - bits)]).view(mx.uint64)
    return ((words >> _shifts(bits)) & (2**bits - 1)).astype(mx.uint32).flatten(-2)


def _shifts(bits: int) -> mx.array:
    """Where each of eight codes begins in their word."""
    return mx.arange(0, 8 * bits, bits, dtype=mx.uint64)


@dataclass(frozen=True)
class TurboKeys(Storage):
    """Integers of `bits` with a scale and a zero in float16 per group: (codes + zero) * scale."""

    bits: int
    group_size: int = GROUP
    count = 3
    block = BLOCK

    def pack(self, x: mx.array) -> Parts:
        groups = x.astype(mx.float32).reshape(*x.shape[:-1], -1, GROUP)  # [B, K, L, G, 32]
        low, high = groups.min(axis=-1, keepdims=True), groups.max(axis=-1, keepdims=True)
        scale = (high - low) / (254 if self.bits == 8 else 2**self.bits - 1)
        reach = mx.maximum(mx.abs(low), mx.abs(high)) / MOST_STEPS
        scale = mx.maximum(mx.maximum(scale, reach), LEAST).astype(mx.float16).astype(mx.float32)
        zero = mx.round((high + low) / (2 * scale)) if self.bits == 8 else mx.round(low / scale)
        least = -127 if self.bits == 8 else 0
        codes = mx.clip(mx.round(groups / scale - zero), least, least + 2**self.bits - (2 if self.bits == 8 else 1))
        codes = (codes - least).astype(mx.uint32).reshape(x.shape)
        return packed_bits(codes, self.bits), scale[..., 0].astype(mx.float16), zero[..., 0].astype(mx.float16)

    def unpack(self, parts: Parts) -> mx.array:
        codes = unpacked_bits(parts[0], self.bits).astype(mx.float32)
        groups = codes.reshape(*codes.shape[:-1], -1, GROUP) - (127 if self.bits == 8 else 0)
        scale, zero = (part.astype(mx.float32)[..., None] for part in parts[1:])
        return ((groups + zero) * scale).reshape(codes.shape)


@dataclass(frozen=True)
class TurboValues(Storage):
    """Rotated values, each the nearest centroid of its group's RMS: codes and a scale in float16 per group.

    A group whose RMS is below 2^-25 (3e-8) has the scale 0 in float16 and decodes to 0.
    """

    bits: int
    group_size: int = GROUP
    count = 2
    block = BLOCK

    def pack(self, x: mx.array) -> Parts:
        rotated = mx.hadamard_transform(x.astype(mx.float32) * _signs(x.shape[-1]))
        groups = rotated.reshape(*x.shape[:-1], -1, GROUP)  # [B, K, L, G, 32]
        scale = mx.sqrt((groups * groups).mean(axis=-1, keepdims=True)).astype(mx.float16).astype(mx.float32)
        codes = _nearest(groups / (scale + FLOOR), self.bits).reshape(x.shape)
        return packed_bits(codes, self.bits), scale[..., 0].astype(mx.float16)

    def unpack(self, parts: Parts) -> mx.array:
        codes = unpacked_bits(parts[0], self.bits)
        groups = _centroids(self.bits)[codes].reshape(*codes.shape[:-1], -1, GROUP)
        rotated = (groups * parts[1].astype(mx.float32)[..., None]).reshape(codes.shape)
        return mx.hadamard_transform(rotated) * _signs(codes.shape[-1])


@cache
def _signs(dim: int) -> mx.array:
    """Fixed signs [D], +1 or -1 in float32."""
    drawn = mx.random.randint(0, 2, (dim,), key=mx.random.key(SIGNS_SEED))
    signs = drawn.astype(mx.float32) * 2 - 1
    mx.eval(signs)  # it is kept: unevaluated, it would belong to the thread that asked first, and end with it
    return signs


def _nearest(x: mx.array, bits: int) -> mx.array:
    """The index of the nearest centroid, uint32, by halving."""
    centroids = _centroids(bits)
    bounds = (centroids[1:] + centroids[:-1]) / 2
    codes = mx.zeros(x.shape, mx.uint32)
    for step in (1 << bit for bit in reversed(range(bits))):
        codes = codes + mx.where(x > bounds[codes + (step - 1)], mx.array(step, mx.uint32), mx.array(0, mx.uint32))
    return codes


@cache
def _centroids(bits: int) -> mx.array:
    upper = CODEBOOKS[str(bits)]
    return mx.array([-c for c in reversed(upper)] + upper, mx.float32)
