"""What converting a filled cache costs in memory, above what the cache holds already."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine import parse_kv
from engine.kv.base import live_scheme
from engine.kv.dense import DenseKV
from engine.kv.plan import KVPlan
from engine.kv.scheme import NATIVE, scheme_of
from engine.kv.spec import CacheSpec

HEADS, DIM = 8, 64
FLOAT32 = 4
# Scalars, and what the allocator rounds up.
SLACK = 64 * 1024


# Whole blocks, and a last one that is shorter.
@pytest.mark.parametrize(("kv", "tokens"), [("kv8", 4096), ("kv4", 4352), ("kv8/4:g32", 2304)])
def test_converting_needs_one_packed_side_and_the_work_of_one_block(kv: str, tokens: int) -> None:
    """Keys are packed, then let go, then values are: while keys are packed, nothing of the old cache is free yet, so
    the packed keys come on top; while values are, the old keys are free, and they are larger than both packed sides.
    The work of a block is its tokens in one piece (a slice of a buffer is copied for mx.quantize) and packed."""
    every = parse_kv(kv).every
    assert every is not None
    scheme = scheme_of(every)
    drawn = [mx.random.normal((1, HEADS, tokens, DIM), key=mx.random.key(i)) for i in range(2)]
    once = [*scheme.keys.pack(drawn[0]), *scheme.values.pack(drawn[1])]
    cache = DenseKV(CacheSpec(), NATIVE)
    cache.append(*drawn)
    del drawn
    mx.eval(once, cache.arrays())
    block = scheme.keys.block
    packed_keys = sum(a.nbytes for a in once[: scheme.keys.count])
    in_one_piece = HEADS * block * DIM * FLOAT32
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    converted = cache.converted(scheme)
    mx.eval(converted.arrays())
    peak = mx.get_peak_memory() - held
    assert peak <= packed_keys + in_one_piece + packed_keys * block // tokens + SLACK
    assert cache.arrays() == []
    for ours, whole in zip(converted.arrays(), once, strict=True):
        assert mx.array_equal(ours, whole)


RING = 6144
KINDS: dict[str, CacheSpec] = {
    "dense": CacheSpec(head_dims=(DIM, DIM)),
    "ring": CacheSpec(kind="rotating", size=RING, window=RING, head_dims=(DIM, DIM)),
}
AFFINE = ("kv8", "kv4", "kv2", "kv3", "kv6", "kv8/4:g32", "kv4/8")
TURBO = ("turbo:k8v3", "turbo:k4v8", "turbo:k5v5")


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize(("kind", "kv"), [("dense", kv) for kv in AFFINE + TURBO] + [("ring", kv) for kv in AFFINE[:2]])
def test_converting_peaks_below_the_call_that_filled_the_cache(kind: str, kv: str, dtype: mx.Dtype) -> None:
    """While a buffer grows, or a ring is put in order, the old one and the new one are there: native caches need that
    too."""
    tokens, last = 8192, 512
    plan = KVPlan.build(parse_kv(f"{kv}:start={tokens}"), [KINDS[kind]])
    caches = plan.fresh()
    peaks = {}
    for at, length in ((0, tokens - last), (tokens - last, last)):
        drawn = [mx.random.normal((1, HEADS, length, DIM), dtype=dtype, key=mx.random.key(at + i)) for i in range(2)]
        mx.eval(drawn)
        mx.reset_peak_memory()
        caches[0].append(*drawn)  # type: ignore[attr-defined]
        mx.eval(caches[0].arrays())
        peaks["appending"] = mx.get_peak_memory() - sum(x.nbytes for x in drawn)
        del drawn
    assert live_scheme(caches) == "native"
    mx.reset_peak_memory()
    plan.convert(caches)
    mx.eval(caches[0].arrays())
    peaks["converting"] = mx.get_peak_memory()
    assert live_scheme(caches) == plan.describe()[0]
    assert peaks["converting"] <= peaks["appending"], peaks
