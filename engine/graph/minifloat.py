"""Values rounded to small floats with a scale for each block of the last axis, and back (mlx-lm 0.32.2,
models/deepseek_v41.py). A last axis that blocks do not divide stays as it is.

Letters: N blocks, W values of a block.
"""

from __future__ import annotations

import mlx.core as mx

# What the bits after the sign of a 4-bit float (e2m1) stand for. A value halfway goes to the even code: those in
# BELOW belong to the smaller neighbour, those in ABOVE to the larger one.
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BELOW, ABOVE = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)
FP8_MAX = 448.0


def rounded_fp8(x: mx.array, block: int = 32) -> mx.array:
    """x through e4m3 with a power of two as each block's scale."""
    if x.shape[-1] % block:
        return x
    blocks, largest = _blocks(x, block, 1e-4)
    scale = mx.power(2.0, mx.ceil(mx.log2(largest / FP8_MAX)))
    codes = mx.to_fp8(mx.clip(blocks / scale, -FP8_MAX, FP8_MAX))
    return (mx.from_fp8(codes, mx.float32) * scale).reshape(x.shape).astype(x.dtype)


def rounded_fp4(x: mx.array, block: int, e4m3: bool = False) -> mx.array:
    """x through e2m1; each block's scale is a power of two, or an 8-bit float itself."""
    if x.shape[-1] % block:
        return x
    blocks, largest = _blocks(x, block, FP4[-1] * 2.0 ** (-9 if e4m3 else -126))
    scale = largest / FP4[-1]
    scale = mx.from_fp8(mx.to_fp8(scale), mx.float32) if e4m3 else mx.power(2.0, mx.ceil(mx.log2(scale)))
    return (nearest_fp4(mx.clip(blocks / scale, -FP4[-1], FP4[-1])) * scale).reshape(x.shape).astype(x.dtype)


def nearest_fp4(x: mx.array) -> mx.array:
    """Each of the float32 values in [-6, 6] as the nearest value of FP4."""
    size = mx.abs(x)
    code = mx.zeros(size.shape, mx.int32)
    for past in (*(size > bound for bound in BELOW), *(size >= bound for bound in ABOVE)):
        code = code + past.astype(mx.int32)
    return mx.sign(x) * mx.array(FP4, dtype=mx.float32)[code]


def _blocks(x: mx.array, block: int, floor: float) -> tuple[mx.array, mx.array]:
    """x as float32 blocks [..., N, W] and the largest size in each [..., N, 1], at least `floor`."""
    blocks = mx.unflatten(x.astype(mx.float32), -1, (-1, block))
    return blocks, mx.maximum(mx.max(mx.abs(blocks), axis=-1, keepdims=True), floor)
