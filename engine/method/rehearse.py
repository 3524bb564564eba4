"""A part of a long request without its beginning: what it takes in memory."""

from __future__ import annotations

import mlx.core as mx

from engine.kv.base import LayerCache
from engine.method.decode import DecodeRow
from engine.types import Rehearsal


def rehearse(row: DecodeRow, held: list[LayerCache]) -> Rehearsal:
    """Run `row` over caches that hold something already."""
    row.caches = held
    mx.eval([a for cache in held for a in cache.arrays()])
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    while row.prefill():
        pass
    for _ in range(row.limit):
        row.step()
    mx.synchronize()
    return Rehearsal(mx.get_peak_memory(), sum(cache.nbytes for cache in row.caches))
