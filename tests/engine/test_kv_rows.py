"""Rows of caches in random programs, against plain lists: each row's tokens, packed and attended alone.

Letters: B rows, L tokens of one call, S keys, D head dimension. Buffers grow by `STEP` tokens here, so that short
programs meet every edge. What attention returns, or a state holds, is compared bit for bit.
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
from engine.kv.buffered import BufferedKV
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.recurrent import StateKV
from engine.kv.request import parse_kv
from engine.kv.rotating import ChunkedKV, RotatingKV
from engine.kv.scheme import NATIVE, Scheme, scheme_of
from engine.kv.spec import CacheSpec

STEP, SIZE, DIM, SCALE = 4, 8, 64, 0.125
PROGRAMS, OPERATIONS = 8, 10  # of each case; of each program
MOST_ROWS, MOST_CACHES = 4, 4
LENGTHS = (1, 1, 1, 1, 2, 3, 5, 9)
AFFINE = ("kv2", "kv3:g32", "kv4:g32", "kv5", "kv6:g32", "kv8", "kv8/4", "kv3/6:g32")
TURBO = ("turbo:k8v3", "turbo:k4v2")


def _scheme(text: str) -> Scheme:
    every = parse_kv(text).every
    return NATIVE if every is None else scheme_of(every)


def _ring(keep: int, scheme: Scheme) -> RotatingKV:
    return RotatingKV(CacheSpec(kind="rotating", size=SIZE, window=SIZE, keep=keep), scheme)


KINDS: dict[str, Callable[[Scheme], LayerCache]] = {
    "dense": partial(DenseKV, CacheSpec()),
    "window": partial(DenseKV, CacheSpec(window=SIZE)),
    "ring keep 0": partial(_ring, 0),
    "ring keep 2": partial(_ring, 2),
    "chunk": partial(ChunkedKV, CacheSpec(kind="chunked", size=SIZE)),
    "state": lambda scheme: StateKV(CacheSpec(kind="state", slots=2)),
}
# Planning refuses the others.
CASES = [(kind, kv) for kind in ("dense", "window") for kv in ("native", *AFFINE, *TURBO)]
CASES += [(kind, kv) for kind in ("ring keep 0", "ring keep 2") for kv in ("native", *AFFINE)]
CASES += [("chunk", "native"), ("state", "native")]
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
        return partial(cache.append(keys, values).attend, queries, SCALE, Masks())
    assert isinstance(cache, StateKV)
    past, memory = cache.slots
    past = mx.zeros((len(call), 2, 3, DIM)) if past is None else past
    memory = keys.sum(axis=2) if memory is None else 0.5 * memory + past[:, :, 0] * keys.sum(axis=2)
    cache.append(len(call[0]), mx.concatenate([past, keys], axis=2)[:, :, -3:], memory)
    return lambda: memory


def ring(row: Row, keep: int) -> tuple[list[int], int]:
    """The tokens in a ring, in its order, and where the next one goes: mlx-lm's rules on a list."""
    slots: list[int] = []
    at = 0
    for call in row:
        if len(call) == 1:
            if len(slots) > SIZE:
                slots, at = slots[:keep] + slots[len(slots) - SIZE + keep :], SIZE
            at = keep if at == SIZE else at
            slots[at : at + 1] = call
            at += 1
            continue
        slots = slots[:keep] + slots[at:] + slots[keep:at] if at < len(slots) else slots
        surplus = max(0, len(slots) - SIZE + 1)
        slots = slots[:keep] + slots[surplus + keep :] + list(call) if surplus else slots + list(call)
        at = len(slots)
    return slots, at


@dataclass(frozen=True)
class Lists:
    """What a row of a kind of cache is, by lists."""

    kind: str

    def marks(self, row: Row) -> tuple[int, ...]:
        """The counters that a cache of this row has."""
        offset = sum(map(len, row))
        if self.kind.startswith("ring"):
            return offset, ring(row, int(self.kind[-1]))[1]
        return (offset, offset - len(self.slots(row))) if self.kind == "chunk" else (offset,)

    def slots(self, row: Row) -> list[int]:
        """The tokens that are held, in order."""
        if self.kind.startswith("ring"):
            return ring(row, int(self.kind[-1]))[0]
        every = [token for call in row for token in call]
        return every[-SIZE - len(row[-1]) :] if self.kind == "chunk" and row else every

    def seen(self, row: Row) -> mx.array:
        """Boolean [L, S]: what each token of the last call may see of `slots`."""
        L, S, offset = len(row[-1]), len(self.slots(row)), sum(map(len, row))
        if self.kind.startswith("ring") and L == 1:
            return mx.ones((1, S), dtype=mx.bool_)
        key, query = np.arange(S), np.arange(S - L, S)[:, None]
        if self.kind == "chunk":
            return mx.array((key <= query) & ((key + offset - S) // SIZE == (query + offset - S) // SIZE))
        return mx.array((key <= query) & (query - key < (S + 1 if self.kind == "dense" else SIZE)))

    def read(self, row: Row, kv: str) -> mx.array:
        """What a graph reads after the row's last call, [1, ...]."""
        if self.kind == "state":
            return self._memory(row)
        at = mx.array(self.slots(row))
        keys, values = (each[at].swapaxes(0, 1)[None] for each in tokens()[:2])
        return attended(tokens()[2][mx.array(row[-1])].swapaxes(0, 1)[None], keys, values, kv, self.seen(row))

    @staticmethod
    def _memory(row: Row) -> mx.array:
        memory, before = mx.array(0.0), [mx.zeros((2, DIM))] * 3
        for i, call in enumerate(row):
            every = [tokens()[0][token] for token in call]
            sums = mx.stack(every, axis=1)[None].sum(axis=2)
            memory = 0.5 * memory + before[0] * sums if i else sums
            before = [*before, *every][-3:]
        return memory


def attended(queries: mx.array, keys: mx.array, values: mx.array, kv: str, seen: mx.array) -> mx.array:
    """One row's attention: keys and values [1, 2, S, D] packed here, in the oracle's order of operations."""
    every = parse_kv(kv).every
    if every is None or every.turbo:
        scheme = _scheme(kv)
        keys, values = scheme.keys.unpack(scheme.keys.pack(keys)), scheme.values.unpack(scheme.values.pack(values))
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=SCALE, mask=seen)
    grouped = (queries * SCALE).reshape(1, 2, 2, -1, DIM)

    def product(x: mx.array, rows: mx.array, bits: int, transpose: bool) -> mx.array:
        packed = [part[:, :, None] for part in mx.quantize(rows, every.group_size, bits)]
        return mx.quantized_matmul(x, *packed, transpose=transpose, group_size=every.group_size, bits=bits)

    scores = mx.where(seen, product(grouped, keys, every.bits, True), mx.finfo(mx.float32).min)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return product(weights, values, every.value_bits, False).reshape(queries.shape)


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
    """A cache and what the lists say of it. begun: whether it has arrays, of no tokens maybe."""

    cache: LayerCache
    kv: str
    rows: list[Row]
    offset: int = 0
    begun: bool = False

    def held(self) -> tuple[Any, ...]:
        """Copies that nothing can change."""
        marks, arrays = self.cache.held()
        return (*marks, *(None if a is None else np.array(a).tobytes() for a in arrays))


class Program:
    """A seeded run of operations on caches of one case. `log`: what was done, for a failure's report."""

    def __init__(self, kind: str, kv: str, seed: int) -> None:
        self.kind, self.kv, self.rng = kind, kv, np.random.default_rng(seed)
        self.lists = Lists(kind)
        begins = kv if seed % 2 else "native"  # packed on write, or to be converted
        self.told = [Told(KINDS[kind](_scheme(begins)), begins, [()])]
        self.saved: list[tuple[Saved, Told]] = []
        self.log: list[Any] = [seed]

    def run(self) -> None:
        does = [self.append] * 7 + [self.poison] * 2 + [self.snapshot, self.restore, self.regret, self.regret]
        does += [self.merge, self.meet, self.meet, self.filter, self.extract, self.trim, self.trim]
        does += [self.convert, self.convert]
        for _ in range(OPERATIONS):
            one = self.told[self.below(len(self.told))]
            does[self.below(len(does))](one)
            for each in self.told:
                assert each.cache.offset == each.offset, self.log
                each.cache.check()
        for each in self.told:
            self.convert(each)
            self.append(each)

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

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
        got = self.given(one, self.drawn(one))()
        alone = mx.concatenate([self.lists.read(row, one.kv) for row in one.rows])
        assert mx.array_equal(got, alone), self.log

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
        used = 0 if isinstance(one.cache, StateKV) else len(self.lists.slots(one.rows[0]))
        self.log.append(("poison", used))
        if isinstance(one.cache, BufferedKV):
            poisoned(one.cache, used)

    def convert(self, one: Told) -> None:
        """As a plan does after a forward, to the case's scheme."""
        if one.kv != "native" or self.kv == "native":
            return
        self.log.append("convert")
        assert isinstance(one.cache, BufferedKV)
        one.cache, one.kv = one.cache.converted(_scheme(self.kv)), self.kv

    def snapshot(self, one: Told) -> None:
        self.log.append("snapshot")
        self.saved.append((one.cache.snapshot(), replace(one, rows=list(one.rows))))

    def restore(self, one: Told) -> None:
        saved, then = self.saved[self.below(len(self.saved))] if self.saved else (ALIEN, replace(one, kv="alien"))
        if then.kv == one.kv:
            self.back(one, saved, then)
        else:
            self.refused(lambda: one.cache.restore(saved))

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
        """Into a new cache, or into this one."""
        others = [self.told[self.below(len(self.told))] for _ in range(1 + self.below(2))]
        rows = [row for each in (one, *others) for row in each.rows]
        if len(rows) > MOST_ROWS:
            return
        join = (one.cache.merge, one.cache.extend)[self.below(2)]
        self.log.append((join.__name__, [each.rows for each in (one, *others)]))
        alike = all((each.begun, each.kv) == (one.begun, one.kv) for each in others)
        if self.kind != "state":
            alike = alike and len({self.lists.marks(row) for row in rows}) == 1
        caches = [each.cache for each in others]
        if not alike:
            self.refused(lambda: join(caches))
            return
        offset = max(each.offset for each in (one, *others))
        joined = join(caches)
        if joined is None:
            one.rows, one.offset = rows, offset
        else:
            self.add(Told(joined, one.kv, rows, offset, one.begun))

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
        self.add(Told(one.cache.extract(row), one.kv, [one.rows[row]], one.offset, one.begun))

    def trim(self, one: Told) -> None:
        count = self.below(min(one.offset, 6) + 3) - 1
        self.log.append(("trim", count))
        gone = {DenseKV: False, RotatingKV: one.offset >= SIZE, StateKV: True}.get(type(one.cache))
        if gone is None:
            gone = self.lists.marks(one.rows[0])[1] > 0  # the beginning of the chunk's buffer
        if not 0 <= count <= one.offset or (count and gone):
            self.refused(lambda: one.cache.trim(count))
            return
        one.cache.trim(count)
        one.rows, one.offset = [without(row, count) for row in one.rows], one.offset - count


def poisoned(cache: BufferedKV, used: int) -> int:
    """Spoil every slot from `used` on, and say how many there are."""
    for array in cache.arrays():
        bad = mx.nan if mx.issubdtype(array.dtype, mx.floating) else mx.iinfo(array.dtype).max
        array[:, :, used:] = bad
    return int(cache.arrays()[0].shape[2]) - used if cache.arrays() else 0


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kv.buffers.STEP", STEP)
    monkeypatch.setattr("engine.kv.rotating.STEP", STEP)


@pytest.mark.parametrize(("kind", "kv"), CASES)
def test_rows_are_what_they_would_be_alone(kind: str, kv: str) -> None:
    for seed in range(PROGRAMS):
        Program(kind, kv, PROGRAMS * CASES.index((kind, kv)) + seed).run()


@pytest.mark.parametrize("converts", [False, True])
@pytest.mark.parametrize(("kind", "kv"), [case for case in CASES if case[0] != "state"])
def test_what_is_past_the_end_is_never_attended(kind: str, kv: str, converts: bool) -> None:
    """After a conversion too: what was past the end is packed with the rest."""
    cache = KINDS[kind](_scheme("native" if converts else kv))
    assert isinstance(cache, BufferedKV)
    row: Row = ()
    spoiled = 0
    for call in ((1, 2), (3,), (4,), (5,), (6, 7, 8), (9,), (10,)):
        got, row = appended(cache, [call])(), (*row, call)
        assert mx.array_equal(got, Lists(kind).read(row, "native" if converts else kv)), row
        spoiled += poisoned(cache, len(Lists(kind).slots(row)))
    assert spoiled > 0
    if converts:
        cache = cache.converted(_scheme(kv))
    for call in ((11,), (12, 13)):
        got, row = appended(cache, [call])(), (*row, call)
        assert mx.array_equal(got, Lists(kind).read(row, kv)), row


@pytest.mark.parametrize("kv", ["native", "kv8"])
def test_rows_of_one_length_are_joined_though_they_came_in_other_calls(kv: str) -> None:
    """Their buffers have room for unequal numbers of tokens."""
    together, row = KINDS["dense"](_scheme(kv)), tuple(i % 64 for i in range(9))
    appended(together, [row])
    apart = KINDS["dense"](_scheme(kv))
    appended(apart, [row[:2]])
    appended(apart, [row[2:]])
    assert len({cache.arrays()[0].shape[2] for cache in (together, apart)}) == 2
    rows = appended(together.merge([apart]), [(7,), (7,)])()
    assert mx.array_equal(rows[:1], rows[1:])
    assert mx.array_equal(rows[:1], appended(together, [(7,)])())
