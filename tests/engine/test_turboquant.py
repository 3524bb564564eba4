"""TurboQuant's storage against a reference in NumPy: bytes of keys and of values, what they decode to, the codebooks.

Letters: N tokens, D head dimension, G groups of 32 along D. Bytes and float16 scales and zeros are compared exactly.
The reference works in float64 and the engine in float32, so a token is compared only where both must agree: the
reference leaves out tokens of which a number lies within `MARGIN` of where its rounding turns over, before the engine
has seen them.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm

from engine.kv.request import TURBO_KEY_BITS, TURBO_VALUE_BITS
from engine.kv.turboquant import CODEBOOKS, TurboKeys, TurboValues, unpacked_bits

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

GROUP = 32
DIMS = (64, 128, 256, 512)
# Codes, in steps (keys) or in standard deviations (values). float32 is off by some 1e-6 of them here.
MARGIN = 2e-5
FAR = 1024  # steps from a key group to its zero, at most
LEAST = 2.0**-24  # the smallest number above 0 that float16 holds


def in_bits(codes: npt.NDArray[np.int64], bits: int) -> Bytes:
    """Codes [N, D] as bytes [N, D * bits / 8]: every code's bits from the lowest on, in bytes from their lowest on."""
    out = np.zeros((len(codes), codes.shape[1] * bits // 8), np.uint8)
    for row, line in zip(codes, out, strict=True):
        whole = sum(int(code) << (bits * i) for i, code in enumerate(row))
        line[:] = list(whole.to_bytes(len(line), "little"))
    return out


def steady_half(x: Floats) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.bool_]]:
    """x in float16, and where float32's errors could not change that."""
    return x.astype(np.float16), (x * (1 - 1e-6)).astype(np.float16) == (x * (1 + 1e-6)).astype(np.float16)


def steady_round(x: Floats, less: Any = 0.0) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """x - less as the nearest integer, and where it is not near a half. A large x is less exact in float32."""
    steps = x - less
    return np.round(steps), np.abs(steps - np.floor(steps) - 0.5) > MARGIN * np.maximum(1, np.abs(x) / 64)


def keys_of(x: Floats, bits: int) -> tuple[Bytes, Any, Any, npt.NDArray[np.bool_]]:
    """x [N, D] as packed codes, scales and zeros [N, G], and the tokens [N] for which they are beyond doubt.

    The scale is the range over the steps that `bits` give (254 between symmetric codes, stored with 127 added), but
    never so small that the zero would be far or float16 has no such number; (code + zero) * scale is what is decoded.
    """
    groups = x.reshape(len(x), -1, GROUP)
    low, high = groups.min(-1), groups.max(-1)
    symmetric = bits == 8
    scale = np.maximum((high - low) / (254 if symmetric else 2**bits - 1), np.maximum(abs(low), abs(high)) / FAR)
    scale = np.maximum(scale, LEAST)
    half, sure = steady_half(scale)
    scale = half.astype(np.float64)
    zero, steady = steady_round((high + low) / (2 * scale) if symmetric else low / scale)
    sure &= steady
    codes, steady = steady_round(groups / scale[..., None], zero[..., None])
    sure &= steady.all(-1)
    codes = np.clip(codes, -127, 127) + 127 if symmetric else np.clip(codes, 0, 2**bits - 1)
    packed = in_bits(codes.astype(np.int64).reshape(x.shape), bits)
    return packed, half, zero.astype(np.float16), np.logical_and.reduce(sure, axis=-1)


def rotation(dim: int) -> Floats:
    """Signs, then the orthonormal Walsh-Hadamard transform, as a matrix [D, D] that rows are multiplied with."""
    index = np.arange(dim)
    ones_shared = np.bitwise_count(index[:, None] & index[None])
    signs = np.array(mx.random.randint(0, 2, (dim,), key=mx.random.key(42))) * 2.0 - 1
    return signs[:, None] * (1.0 - 2.0 * (ones_shared % 2)) / np.sqrt(dim)


def centroids(bits: int) -> Floats:
    upper = np.array(CODEBOOKS[str(bits)])
    return np.concatenate([-upper[::-1], upper])


def values_of(x: Floats, bits: int) -> tuple[Bytes, Any, npt.NDArray[np.bool_]]:
    """x [N, D] as packed indices of the nearest centroids and scales [N, G], and the tokens that are beyond doubt."""
    groups = (x @ rotation(x.shape[1])).reshape(len(x), -1, GROUP)
    half, sure = steady_half(np.sqrt((groups**2).mean(-1)))
    apart = np.abs(groups[..., None] / half.astype(np.float64)[..., None, None] - centroids(bits))  # [N, G, 32, 2^bits]
    nearest = np.sort(apart, axis=-1)
    sure &= (nearest[..., 1] - nearest[..., 0] > 2 * MARGIN).all(-1)
    return in_bits(apart.argmin(-1).reshape(x.shape), bits), half, np.logical_and.reduce(sure, axis=-1)


def drawn(dim: int, seed: int) -> Floats:
    """Tokens [96, D] of many sizes, some with an offset that all their numbers share."""
    rng = np.random.default_rng(seed)
    sizes, offsets = 10.0 ** rng.uniform(-1, 1, (96, 1)), rng.choice([0, 0, -3, 30], (96, 1))
    return (rng.normal(size=(96, dim)) * sizes + offsets).astype(np.float32).astype(np.float64)


def stored(x: Floats) -> mx.array:
    """As [2, 3, L, D]: batch and heads are only shape."""
    return mx.array(x.astype(np.float32)).reshape(2, 3, -1, x.shape[1])


def equal(ours: mx.array, theirs: Any, sure: npt.NDArray[np.bool_]) -> bool:
    flat = np.array(ours).reshape(len(theirs), -1)
    return flat.dtype == theirs.dtype and np.array_equal(flat[sure], theirs[sure])


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("bits", TURBO_KEY_BITS)
def test_keys_are_the_references_bytes(bits: int, dim: int) -> None:
    x = drawn(dim, bits)
    *parts, sure = keys_of(x, bits)
    assert sure.sum() > 48
    for ours, theirs in zip(TurboKeys(bits).pack(stored(x)), parts, strict=True):
        assert equal(ours, theirs, sure)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("bits", TURBO_VALUE_BITS)
def test_values_are_the_references_bytes(bits: int, dim: int) -> None:
    x = drawn(dim, bits)
    *parts, sure = values_of(x, bits)
    assert sure.sum() > 24
    for ours, theirs in zip(TurboValues(bits).pack(stored(x)), parts, strict=True):
        assert equal(ours, theirs, sure)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("bits", TURBO_VALUE_BITS)
def test_what_values_decode_to_is_the_reference_turned_back(bits: int, dim: int) -> None:
    """Within float32's rounding of sums of D numbers, not exactly: the transform's order of sums is its own."""
    parts = TurboValues(bits).pack(stored(drawn(dim, bits)))
    codes = np.array(unpacked_bits(parts[0], bits)).reshape(96, -1, GROUP)
    scales = np.array(parts[1].astype(mx.float32)).reshape(96, -1, 1).astype(np.float64)
    expected = (centroids(bits)[codes] * scales).reshape(96, dim) @ rotation(dim).T
    decoded = np.array(TurboValues(bits).unpack(parts)).reshape(96, dim)
    assert (np.abs(decoded - expected) < 1e-5 * np.abs(expected).max(-1, keepdims=True)).all()


@pytest.mark.parametrize("bits", TURBO_KEY_BITS)
@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.3])  # of a group about its middle, relative to it
def test_keys_far_from_zero_decode_within_half_a_step(bits: int, spread: float) -> None:
    """Groups of one number among them, and scales that float16 holds with few bits. On top of the half step: where
    float16 rounded the scale down, the range is by so much for each code longer than the codes reach."""
    rng = np.random.default_rng(bits)
    middle = 10.0 ** rng.uniform(-4, 4, (2000, 1)) * rng.choice([-1, 1], (2000, 1))
    x = (middle * (1 + spread * rng.uniform(-1, 1, (2000, 64)))).astype(np.float32)
    parts = TurboKeys(bits).pack(mx.array(x)[None, None])
    steps = np.array(parts[1].astype(mx.float32)).reshape(-1, 1)
    off = np.abs(np.array(TurboKeys(bits).unpack(parts)).reshape(-1, GROUP).astype(np.float64) - x.reshape(-1, GROUP))
    assert (off <= 0.5 * steps + 2**bits * np.maximum(steps / 2**11, 2.0**-25)).all()
    if not spread:
        assert (off <= np.abs(x.reshape(-1, GROUP)) / FAR).all()


@pytest.mark.parametrize("size", [1e-5, 1e-6, 1e-7, 1e-8])
def test_tokens_too_small_for_float16_are_off_by_less_than_its_smallest_number(size: float) -> None:
    """Keys whose steps would be smaller, by half of it; values by their group's RMS where that is rounded to 0."""
    x = np.random.default_rng(1).normal(size=(200, 64)).astype(np.float32) * np.float32(size)
    for bits in TURBO_KEY_BITS:
        keys, groups = TurboKeys(bits), x.reshape(-1, GROUP)
        fine = np.ptp(groups, axis=-1) / (2**bits - 1) < LEAST
        assert fine.all() or size > 1e-8
        off = np.abs(np.array(keys.unpack(keys.pack(mx.array(x)[None, None]))).reshape(-1, GROUP) - groups)
        assert off[fine].max(initial=0) <= LEAST / 2 * (1 + 1e-4)
    turned = (x.astype(np.float64) @ rotation(64)).reshape(-1, GROUP)
    rms = np.sqrt((turned**2).mean(-1))
    for bits in TURBO_VALUE_BITS:
        values = TurboValues(bits)
        parts = values.pack(mx.array(x)[None, None])
        zero = np.array(parts[1]).reshape(-1) == 0
        assert zero[rms < 0.99 * LEAST / 2].all()
        assert not zero[rms > 1.01 * LEAST / 2].any()
        decoded = np.array(values.unpack(parts)).astype(np.float64).reshape(200, 64) @ rotation(64)
        assert np.abs(decoded.reshape(-1, GROUP)[zero]).max(initial=0) < 1e-6 * LEAST


def test_nothing_decodes_to_nothing() -> None:
    x = mx.zeros((1, 1, 2, 64))
    assert not TurboKeys(4).unpack(TurboKeys(4).pack(x)).any()
    assert not TurboValues(3).unpack(TurboValues(3).pack(x)).any()


@pytest.mark.parametrize("bits", TURBO_VALUE_BITS)
def test_each_centroid_is_the_mean_of_what_it_rounds(bits: int) -> None:
    """Lloyd and Max: no other codebook of this size rounds a unit normal with a smaller squared error."""
    points = centroids(bits)
    assert len(points) == 2**bits
    bounds = np.concatenate([[-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]])
    means = -np.diff(norm.pdf(bounds)) / np.diff(norm.cdf(bounds))
    assert np.abs(points - means).max() < 1e-5
