"""What a row's caches will hold after so many tokens, before there is any of it.

A projected cache is a cache: of the class that would be there, with its counters, and with zeros of the shapes that
its arrays would have, which nobody has evaluated. Reading its size costs nothing; evaluating it takes that much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.kv.base import LayerCache
from engine.kv.buffered import BufferedKV
from engine.kv.buffers import room
from engine.kv.plan import KVPlan
from engine.kv.request import KVRequest
from engine.kv.scheme import NATIVE, Scheme
from engine.kv.spec import CacheSpec
from engine.kv.storage import Parts

# A forward of so many tokens that appends to fresh caches; nothing of it is evaluated.
Run = Callable[[int, list[LayerCache]], None]


def prefill_lengths(tokens: int, chunk: int) -> tuple[int, ...]:
    """The lengths of the forwards in which `tokens` are prefilled."""
    whole, rest = divmod(tokens, chunk)
    return (chunk,) * whole + (rest,) * (rest > 0)


@dataclass(frozen=True)
class _Like:
    """An array without one: even an unevaluated array of zeros holds its zero."""

    shape: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.size

    def zeros(self) -> mx.array:
        return mx.zeros(self.shape, self.dtype)


@dataclass(frozen=True)
class _Rates:
    """Bytes a token of a scheme: of keys and values, and of keys."""

    all: int
    keys: int

    @classmethod
    def of(cls, scheme: Scheme, token: Sequence[_Like | None]) -> _Rates:
        each = [part.nbytes for part in _packed(scheme, token)]
        return cls(sum(each), sum(each[: scheme.keys.count]))


class Projector:
    """Projects the caches of a plan. `run` shows the shapes of what tokens leave in each."""

    def __init__(self, plan: KVPlan, run: Run) -> None:
        self._plan, self._run = plan, run
        self._native = KVPlan.build(KVRequest(kind="native"), [each.spec for each in plan.caches])
        self._grows = any(each.spec.grows for each in plan.caches)
        self._one = self._shapes(1)
        self._rates = [
            None if each.spec.kind == "state" or not like else (_Rates.of(NATIVE, like), _Rates.of(each.scheme, like))
            for each, like in zip(plan.caches, self._one, strict=True)
        ]

    @property
    def counts(self) -> bool:
        """Whether no state grows with its tokens, so that counters and the bytes of one token tell everything."""
        return not self._grows

    def nbytes(self, lengths: Sequence[int], ones: int = 0) -> int:
        """Bytes of `caches(lengths, ones)`. With `counts` they are counted without arrays, on any thread."""
        if not self.counts:
            return sum(cache.nbytes for cache in self.caches(lengths, ones))
        tokens, total = sum(lengths) + ones, 0
        counted: dict[CacheSpec, int] = {}
        caches = zip(self._plan.fresh(), self._plan.caches, self._rates, self._one, strict=True)
        for cache, each, rates, like in caches if tokens else ():
            if not isinstance(cache, BufferedKV) or rates is None:
                total += sum(a.nbytes for a in like if a is not None)
                continue
            if each.spec not in counted:
                counted[each.spec] = counters_after(cache, lengths, ones)[1]
            packed = cache.scheme is not NATIVE or tokens >= self._plan.request.start
            total += counted[each.spec] * rates[packed].all
        return total

    def caches(self, lengths: Sequence[int], ones: int = 0) -> list[LayerCache]:
        """The caches after forwards of these lengths and of so many single tokens, converted as the plan says, their
        arrays not evaluated."""
        tokens, fresh = sum(lengths) + ones, self._plan.fresh()
        if not tokens:
            return fresh
        shapes = self._shapes(tokens) if self._grows else self._one
        counted: dict[CacheSpec, tuple[tuple[int, ...], int]] = {}
        made: list[LayerCache] = []
        for cache, each, like in zip(fresh, self._plan.caches, shapes, strict=True):
            if not like:  # a layer that has a cache and no attention
                made.append(cache)
                continue
            if not isinstance(cache, BufferedKV):
                cache.hold((tokens,), tuple(None if a is None else a.zeros() for a in like))
                made.append(cache)
                continue
            if each.spec not in counted:
                counted[each.spec] = counters_after(cache, lengths, ones)
            marks, space = counted[each.spec]
            if cache.scheme is NATIVE and each.scheme is not NATIVE and tokens >= self._plan.request.start:
                cache = cache.converted(each.scheme)
            cache.hold(marks, room(_packed(cache.scheme, like), space))
            made.append(cache)
        return made

    def peak_bytes(self, lengths: Sequence[int]) -> int:
        """The most that the caches take at one moment of these forwards, their layers working one after the other: a
        buffer that grows is there with its new room and joined to it, keys that are converted as they were and packed.
        """
        shapes = self._shapes(sum(lengths)) if self._grows and lengths else self._one
        caches: dict[CacheSpec, BufferedKV] = {}
        kinds: Counter[tuple[CacheSpec, _Rates, _Rates]] = Counter()
        states = 0
        for cache, each, like in zip(self._plan.fresh(), self._plan.caches, shapes, strict=True):
            if isinstance(cache, BufferedKV) and like:
                caches.setdefault(each.spec, cache)
                kinds[each.spec, _Rates.of(cache.scheme, like), _Rates.of(each.scheme, like)] += 1
            else:
                states += sum(a.nbytes for a in like if a is not None)
        counted = {spec: (cache.marks(), 0) for spec, cache in caches.items()}
        start, before, most = self._plan.request.start, 0, 0
        for length in lengths:
            last, counted = counted, {spec: caches[spec].counted(*now, length) for spec, now in counted.items()}
            converted, converts = 0 < before >= start, before + length >= start
            total, extra = states, 0
            for (spec, first, then), count in kinds.items():
                old, new, rates = last[spec][1], counted[spec][1], then if converted else first
                total += count * new * rates.all
                if old and (new != old or (length > 1 and spec.kind != "dense")):
                    extra = max(extra, rates.all * max(old, new))
                if converts and not converted and first != then:
                    extra = max(extra, then.keys * new)
            most, before = max(most, total + extra), before + length
        return most

    def _shapes(self, tokens: int) -> list[tuple[_Like | None, ...]]:
        """By cache: one token's keys and values as they are appended [1, K, 1, D], or a state's arrays."""
        caches = self._native.fresh()
        self._run(tokens, caches)
        return [_token(cache) if isinstance(cache, BufferedKV) else _state(cache) for cache in caches]


def _packed(scheme: Scheme, token: Sequence[_Like | None]) -> Parts:
    """What a scheme keeps of a token's keys and values."""
    keys, values = token
    assert keys is not None
    assert values is not None
    return *scheme.keys.pack(keys.zeros()), *scheme.values.pack(values.zeros())


def _token(cache: BufferedKV) -> tuple[_Like, ...]:
    """One token's keys and values as they were appended; () where no layer appends."""
    return tuple(_Like((*x.shape[:2], 1, *x.shape[3:]), x.dtype) for x in cache.arrays())


def _state(cache: LayerCache) -> tuple[_Like | None, ...]:
    return tuple(None if x is None else _Like(x.shape, x.dtype) for x in cache.held()[1])


def counters_after(cache: BufferedKV, lengths: Sequence[int], ones: int = 0) -> tuple[tuple[int, ...], int]:
    """The counters of a fresh cache, and how many tokens it has room for, after appends of these lengths and of so many
    single ones."""
    marks, space = cache.marks(), 0
    for length in lengths:
        marks, space = cache.counted(marks, space, length)
    return cache.counted_ones(marks, space, ones)
