"""What converting a filled cache costs in memory, above what the cache holds already."""

from __future__ import annotations

import mlx.core as mx
import pytest

from engine.kv.buffered import BLOCK
from engine.kv.dense import DenseKV
from engine.kv.request import parse_kv
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
    packed_keys = sum(a.nbytes for a in once[: scheme.keys.count])
    in_one_piece = HEADS * BLOCK * DIM * FLOAT32
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    converted = cache.converted(scheme)
    mx.eval(converted.arrays())
    peak = mx.get_peak_memory() - held
    assert peak <= packed_keys + in_one_piece + packed_keys * BLOCK // tokens + SLACK
    assert cache.arrays() == []
    for ours, whole in zip(converted.arrays(), once, strict=True):
        assert mx.array_equal(ours, whole)
