"""A part of a long request without its beginning: what it takes in memory."""

from __future__ import annotations

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.kv.base import LayerCache
from engine.kv.plan import KVPlan
from engine.method.base import Task
from engine.method.decode import Decode
from engine.types import Rehearsal


def rehearse(decoder: Decoder, kv: KVPlan, task: Task, chunk: int, held: list[LayerCache], *, early: bool) -> Rehearsal:
    """Run `task` over caches that hold something already. early: as it is served."""
    method = Decode(decoder, kv, chunk=chunk, rows="together", early=early)
    row = method.open(task)
    row.caches = held
    mx.eval([a for cache in held for a in cache.arrays()])
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    while row.chunks_left:
        method.prefill([row])
    for _ in range(task.limit):
        method.step([row])
    mx.synchronize()
    return Rehearsal(mx.get_peak_memory(), sum(cache.nbytes for cache in row.caches))
