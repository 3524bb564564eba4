"""Where a prefix may be published: the boundaries from which whoever goes on computes what an unbroken run does.

All runs of one chunk size begin their calls at its multiples, from position 0. Every multiple of the chunk is a
boundary then; whether another position is one depends on what the caches hold:
- keys and values of every token, packed on write or native: any position; no token's bits depend on the calls.
- a scan in blocks: multiples of the block, where the chunk is one too.
- a ring, a chunk of attention, a latent that is attended as it is, a rope that turns by the length so far: none. Sums
  run over keys in another order, or over other forms of them, after other calls.
- a scheme that converts filled caches (`:start=N`, and 0 is one): none. The call that fills one attends it unpacked.
This holds with the bundled BLAS on the CPU; elsewhere products of other shapes have other bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from engine.errors import InvalidValue
from engine.kv.plan import KVPlan
from engine.kv.scheme import NATIVE
from engine.kv.spec import CacheSpec


def publish_every(caches: Iterable[CacheSpec], chunk: int) -> int:
    """The multiples of tokens that are boundaries, for native caches or ones that are packed on write."""
    blocks = {cache.block for cache in caches}
    if None in blocks:
        return chunk
    every = math.lcm(*(block for block in blocks if block is not None))
    return every if chunk % every == 0 else chunk


def planned_every(plan: KVPlan, chunk: int) -> int:
    """`publish_every` under a plan, which may convert."""
    converts = not plan.request.on_write and any(cache.scheme is not NATIVE for cache in plan.caches)
    return chunk if converts else publish_every((cache.spec for cache in plan.caches), chunk)


def require_boundary(plan: KVPlan, chunk: int, tokens: int) -> None:
    """Raise `InvalidValue` if a prefix of `tokens` tokens may not be published."""
    every = planned_every(plan, chunk)
    if tokens < 1 or tokens % every:
        raise InvalidValue(
            "prefix", tokens, f"a multiple of {every} tokens, for kv={plan.request} in chunks of {chunk}"
        )
