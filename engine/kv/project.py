"""What a row's caches will hold after so many tokens, before there is any of it.

A projected cache is a cache: of the class that would be there, with its counters, and with zeros of the shapes that
its arrays would have, which nobody has evaluated. Reading its size costs nothing; evaluating it takes that much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from engine.kv.base import LayerCache
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import room
from engine.kv.plan import KVPlan
from engine.kv.request import KVRequest
from engine.kv.scheme import NATIVE
from engine.kv.spec import CacheSpec

# A forward of so many tokens that appends to fresh caches; nothing of it is evaluated.
Run = Callable[[int, list[LayerCache]], None]


def prefill_lengths(tokens: int, chunk: int) -> tuple[int, ...]:
    """The lengths of the forwards in which `tokens` are prefilled."""
    whole, rest = divmod(tokens, chunk)
    return (chunk,) * whole + (rest,) * (rest > 0)


class Projector:
    """Projects the caches of a plan. `run` shows the shapes of what tokens leave in each."""

    def __init__(self, plan: KVPlan, run: Run) -> None:
        self._plan, self._run = plan, run
        self._native = KVPlan.build(KVRequest(kind="native"), [each.spec for each in plan.caches])
        self._grows = any(each.spec.grows for each in plan.caches)
        self._one = self._shapes(1)
        self._units = [self._unit(i) for i in range(len(plan.caches))]

    def nbytes(self, lengths: Sequence[int]) -> int:
        """Bytes of `caches(lengths)`, counted without making them. From any thread."""
        if self._grows:
            return sum(cache.nbytes for cache in self.caches(lengths))
        tokens, total = sum(lengths), 0
        counted: dict[CacheSpec, int] = {}
        for cache, each, (native, packed) in zip(self._plan.fresh(), self._plan.caches, self._units, strict=True):
            if not tokens or not isinstance(cache, BufferedKV):
                total += native if tokens else 0
                continue
            if each.spec not in counted:
                counted[each.spec] = _counted(cache, lengths)[1]
            converted = cache.scheme is not NATIVE or tokens >= self._plan.request.start
            total += counted[each.spec] * (packed if converted else native)
        return total

    def _unit(self, index: int) -> tuple[int, int]:
        """Bytes of one token in a cache, as it is appended and as the plan packs it; of a state, its own, twice."""
        scheme, like = self._plan.caches[index].scheme, self._one[index]
        native = sum(x.nbytes for x in like if x is not None)
        if self._plan.caches[index].spec.kind == "state":
            return native, native
        keys, values = like
        assert keys is not None
        assert values is not None
        return native, sum(x.nbytes for x in (*scheme.keys.pack(keys), *scheme.values.pack(values)))

    def caches(self, lengths: Sequence[int]) -> list[LayerCache]:
        """The caches after forwards of these lengths, converted as the plan says, their arrays not evaluated."""
        tokens, fresh = sum(lengths), self._plan.fresh()
        if not tokens:
            return fresh
        shapes = self._shapes(tokens) if self._grows else self._one
        counted: dict[CacheSpec, tuple[tuple[int, ...], int]] = {}
        made: list[LayerCache] = []
        for cache, each, like in zip(fresh, self._plan.caches, shapes, strict=True):
            if not isinstance(cache, BufferedKV):
                cache.hold((tokens,), tuple(None if a is None else mx.zeros(a.shape, a.dtype) for a in like))
                made.append(cache)
                continue
            if each.spec not in counted:
                counted[each.spec] = _counted(cache, lengths)
            marks, space = counted[each.spec]
            if cache.scheme is NATIVE and each.scheme is not NATIVE and tokens >= self._plan.request.start:
                cache = cache.converted(each.scheme)
            sides = zip((cache.scheme.keys, cache.scheme.values), like, strict=True)
            held = (room(side.pack(token), space) for side, token in sides if token is not None)
            cache.hold(marks, tuple(x for parts in held for x in parts))
            made.append(cache)
        return made

    def _shapes(self, tokens: int) -> list[tuple[mx.array | None, ...]]:
        """By cache: one token's keys and values as they are appended [1, K, 1, D], or a state's arrays."""
        caches = self._native.fresh()
        self._run(tokens, caches)
        return [_token(cache) if isinstance(cache, BufferedKV) else cache.held()[1] for cache in caches]


def _token(cache: BufferedKV) -> tuple[mx.array, mx.array]:
    keys, values = (mx.zeros((*x.shape[:2], 1, *x.shape[3:]), x.dtype) for x in cache.arrays())
    return keys, values


def _counted(cache: BufferedKV, lengths: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Its counters, and how many tokens it has room for, after appends of these lengths."""
    marks, space = cache.marks(), 0
    for length in lengths:
        marks, space = cache.counted(marks, space, length)
    return marks, space
