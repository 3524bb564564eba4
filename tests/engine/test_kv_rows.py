"""Rows of caches in random programs, against a plain model: each row's tokens, replayed alone from the beginning.

Letters: B rows, L tokens of one call. Buffers grow by `STEP` tokens here, so that short programs meet every edge. What
attention returns, or a state holds, is compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import InvalidValue
from engine.kv.base import LayerCache, LayerKV, Saved
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.recurrent import StateKV
from engine.kv.request import parse_kv
from engine.kv.rotating import ChunkedKV, RotatingKV
from engine.kv.scheme import NATIVE, Scheme, scheme_of
from engine.kv.spec import CacheSpec

STEP, SIZE, DIM = 4, 8, 64
PROGRAMS, OPERATIONS = 12, 10  # of each case; of each program
MOST_ROWS, MOST_CACHES = 4, 4
LENGTHS = (1, 1, 1, 1, 2, 3, 5, 9)
SCHEMES = ("native", "kv8", "kv4:g32", "kv8/4", "turbo:k8v3")


def _scheme(text: str) -> Scheme:
    every = parse_kv(text).every
    return NATIVE if every is None else scheme_of(every)


def _ring(text: str, keep: int) -> RotatingKV:
    return RotatingKV(CacheSpec(kind="rotating", size=SIZE, window=SIZE, keep=keep), _scheme(text))


CASES: dict[str, Callable[[], LayerCache]] = {
    **{f"dense {kv}": partial(lambda kv: DenseKV(CacheSpec(), _scheme(kv)), kv) for kv in SCHEMES},
    "window": lambda: DenseKV(CacheSpec(window=SIZE), NATIVE),
    # Planning refuses turbo in a ring.
    **{f"ring {kv} keep {keep}": partial(_ring, kv, keep) for kv in SCHEMES[:-1] for keep in (0, 2)},
    "chunk": lambda: ChunkedKV(CacheSpec(kind="chunked", size=SIZE), NATIVE),
    "state": lambda: StateKV(CacheSpec(kind="state", slots=2)),
}
ALIEN = Saved("state:3", (0,), (None,) * 3)  # of no cache here

# A row: the tokens of each call, as numbers of `tokens()`.
Row = tuple[tuple[int, ...], ...]


@cache
def tokens() -> tuple[mx.array, ...]:
    """Keys, values [64, 2, D] and queries [64, 4, D] of 64 tokens."""
    return tuple(mx.random.normal((64, heads, DIM), key=mx.random.key(i)) for i, heads in enumerate((2, 2, 4)))


def appended(cache: LayerCache, call: list[tuple[int, ...]]) -> Callable[[], mx.array]:
    """Append one call's tokens [B, L]; what is returned gives what a graph would read, [B, ...]."""
    keys, values, queries = (each[mx.array(call)].swapaxes(1, 2) for each in tokens())
    if isinstance(cache, LayerKV):
        return partial(cache.append(keys, values).attend, queries, 0.125, Masks())
    assert isinstance(cache, StateKV)
    past, memory = cache.slots
    past = mx.zeros((len(call), 2, 3, DIM)) if past is None else past
    memory = keys.sum(axis=2) if memory is None else 0.5 * memory + past[:, :, 0] * keys.sum(axis=2)
    cache.append(len(call[0]), mx.concatenate([past, keys], axis=2)[:, :, -3:], memory)
    return lambda: memory


def without(row: Row, count: int) -> Row:
    """The row without its last tokens."""
    left = list(row)
    while count:
        last = left.pop()
        left += [last[:-count]] if len(last) > count else []
        count -= min(count, len(last))
    return tuple(left)


@dataclass
class Told:
    """A cache and what the model says of it. begun: whether it has arrays, of no tokens maybe."""

    cache: LayerCache
    rows: list[Row]
    offset: int = 0
    begun: bool = False

    def held(self) -> tuple[Any, ...]:
        """Copies that nothing can change."""
        marks, arrays = self.cache.held()
        return (*marks, *(None if a is None else np.array(a).tobytes() for a in arrays))


class Program:
    """A seeded run of operations on caches of one case. `log`: what was done, for a failure's report."""

    def __init__(self, make: Callable[[], LayerCache], seed: int) -> None:
        self.make, self.rng = make, np.random.default_rng(seed)
        self.told = [Told(make(), [()])]
        self.saved: list[tuple[Saved, Told]] = []
        self.log: list[Any] = [seed]

    def run(self) -> None:
        does = [self.append] * 7 + [self.poison] * 2 + [self.snapshot, self.restore, self.regret, self.regret]
        does += [self.merge, self.meet, self.meet, self.filter, self.extract, self.trim, self.trim]
        for _ in range(OPERATIONS):
            one = self.told[self.below(len(self.told))]
            does[self.below(len(does))](one)
            for each in self.told:
                assert each.cache.offset == each.offset, self.log
                each.cache.check()
        for each in self.told:
            self.append(each)

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

    def replayed(self, row: Row) -> LayerCache:
        alone = self.make()
        for call in row:
            appended(alone, [call])
        return alone

    def marks(self, row: Row) -> tuple[int, ...]:
        return self.replayed(row).held()[0]

    def refused(self, does: Callable[[], object]) -> None:
        """It is, and everything is as it was."""
        self.log.append("refused")
        before = [each.held() for each in self.told]
        with pytest.raises(InvalidValue):
            does()
        assert [each.held() for each in self.told] == before, self.log

    def add(self, new: Told) -> None:
        if len(self.told) == MOST_CACHES:
            self.told.pop(self.below(MOST_CACHES))
        self.told.append(new)

    def append(self, one: Told) -> None:
        call = self.drawn(one)
        alone = [appended(self.replayed(row), [each])() for row, each in zip(one.rows, call, strict=True)]
        assert mx.array_equal(self.given(one, call)(), mx.concatenate(alone)), self.log

    def drawn(self, one: Told, most: int = SIZE + 1) -> list[tuple[int, ...]]:
        length = min(most, LENGTHS[self.below(len(LENGTHS))])
        return [tuple(self.rng.integers(64, size=length).tolist()) for _ in one.rows]

    def given(self, one: Told, call: list[tuple[int, ...]]) -> Callable[[], mx.array]:
        self.log.append(("append", len(call), len(call[0])))
        seen = appended(one.cache, call)
        one.rows = [(*row, each) for row, each in zip(one.rows, call, strict=True)]
        one.offset, one.begun = one.offset + len(call[0]), True
        return seen

    def poison(self, one: Told) -> None:
        """Write NaN, and the largest integers, past the tokens that are in each buffer."""
        if isinstance(one.cache, StateKV):
            return
        used = one.offset
        if isinstance(one.cache, ChunkedKV):
            used -= self.marks(one.rows[0])[1]
        elif isinstance(one.cache, RotatingKV) and used >= SIZE:
            return
        self.log.append(("poison", used))
        for array in one.cache.arrays():
            bad = mx.nan if mx.issubdtype(array.dtype, mx.floating) else mx.iinfo(array.dtype).max
            array[:, :, used:] = bad

    def snapshot(self, one: Told) -> None:
        self.log.append("snapshot")
        self.saved.append((one.cache.snapshot(), replace(one, rows=list(one.rows))))

    def restore(self, one: Told) -> None:
        if not self.saved:
            self.refused(lambda: one.cache.restore(ALIEN))
        else:
            self.back(one, *self.saved[self.below(len(self.saved))])

    def back(self, one: Told, saved: Saved, then: Told) -> None:
        self.log.append(("restore", then.rows))
        one.cache.restore(saved)
        one.rows, one.offset, one.begun = list(then.rows), then.offset, then.begun

    def regret(self, one: Told) -> None:
        """Single tokens that are taken back: in a ring they were written over older ones."""
        self.snapshot(one)
        for _ in range(2 + self.below(2)):
            self.given(one, self.drawn(one, 1))
        self.back(one, *self.saved[-1])

    def meet(self, one: Told) -> None:
        """Let the shorter caches catch up, in calls of their own lengths, and merge; the next append tells."""
        longest = max(each.offset for each in self.told)
        for each in self.told:
            while each.offset < longest:
                self.given(each, self.drawn(each, longest - each.offset))
        self.merge(one)

    def merge(self, one: Told) -> None:
        others = [self.told[self.below(len(self.told))] for _ in range(1 + self.below(2))]
        rows = [row for each in (one, *others) for row in each.rows]
        if len(rows) > MOST_ROWS:
            return
        self.log.append(("merge", [each.rows for each in (one, *others)]))
        alike = all(each.begun == one.begun for each in others)
        if not isinstance(one.cache, StateKV):
            alike = alike and len({self.marks(row) for row in rows}) == 1
        caches = [each.cache for each in others]
        if not alike:
            self.refused(lambda: one.cache.merge(caches))
            return
        offset = max(each.offset for each in (one, *others))
        self.add(Told(one.cache.merge(caches), rows, offset, one.begun))

    def filter(self, one: Told) -> None:
        self.refused(lambda: one.cache.filter([0, len(one.rows) if one.begun else 1]))
        self.refused(lambda: one.cache.filter([-1]))
        if one.begun:
            rows = [self.below(len(one.rows)) for _ in range(1 + self.below(3))]
            self.log.append(("filter", rows))
            one.cache.filter(rows)
            one.rows = [one.rows[row] for row in rows]

    def extract(self, one: Told) -> None:
        self.refused(lambda: one.cache.extract(len(one.rows)))
        row = self.below(len(one.rows)) if one.begun else 0
        self.log.append(("extract", row))
        self.add(Told(one.cache.extract(row), [one.rows[row]], one.offset, one.begun))

    def trim(self, one: Told) -> None:
        count = self.below(min(one.offset, 6) + 3) - 1
        self.log.append(("trim", count))
        gone = {DenseKV: False, RotatingKV: one.offset >= SIZE, StateKV: True}.get(type(one.cache))
        if gone is None:
            gone = self.marks(one.rows[0])[1] > 0  # the beginning of the chunk's buffer
        if not 0 <= count <= one.offset or (count and gone):
            self.refused(lambda: one.cache.trim(count))
            return
        one.cache.trim(count)
        one.rows, one.offset = [without(row, count) for row in one.rows], one.offset - count


@pytest.mark.parametrize("case", list(CASES))
def test_rows_are_what_they_would_be_alone(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kv.buffers.STEP", STEP)
    monkeypatch.setattr("engine.kv.rotating.STEP", STEP)
    for seed in range(PROGRAMS):
        Program(CASES[case], PROGRAMS * list(CASES).index(case) + seed).run()


@pytest.mark.parametrize("case", ["dense native", "dense kv8"])
def test_rows_of_one_length_are_joined_though_they_came_in_other_calls(case: str) -> None:
    """Their buffers have room for unequal numbers of tokens."""
    together, row = CASES[case](), tuple(i % 64 for i in range(260))
    appended(together, [row])
    apart = CASES[case]()
    appended(apart, [row[:250]])
    appended(apart, [row[250:]])
    assert len({cache.arrays()[0].shape[2] for cache in (together, apart)}) == 2
    rows = appended(together.merge([apart]), [(7,), (7,)])()
    assert mx.array_equal(rows[:1], rows[1:])
    assert mx.array_equal(rows[:1], appended(together, [(7,)])())
