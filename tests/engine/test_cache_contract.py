"""What every kind of cache can do: be saved and gone back to, be cut into rows and joined, forget, and be checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import InvalidValue
from engine.kv.base import LayerCache, LayerKV
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.recurrent import StateKV
from engine.kv.request import parse_kv
from engine.kv.rotating import ChunkedKV, RotatingKV
from engine.kv.scheme import NATIVE, Scheme, scheme_of
from engine.kv.spec import CacheSpec

SIZE, DIM = 8, 64
AFTER = (1, 1, 3, 1, 6, 1)  # tokens of the calls that follow


def _scheme(text: str) -> Scheme:
    every = parse_kv(text).every
    return NATIVE if every is None else scheme_of(every)


def _dense(text: str = "native", window: int | None = None) -> DenseKV:
    return DenseKV(CacheSpec(window=window), _scheme(text))


def _ring(text: str = "native", keep: int = 0) -> RotatingKV:
    return RotatingKV(CacheSpec(kind="rotating", size=SIZE, window=SIZE, keep=keep), _scheme(text))


def _chunk() -> ChunkedKV:
    return ChunkedKV(CacheSpec(kind="chunked", size=SIZE), NATIVE)


def _state() -> StateKV:
    return StateKV(CacheSpec(kind="state", slots=2))


# name -> (a new cache, tokens of the calls that fill it)
CASES: dict[str, tuple[Callable[[], LayerCache], tuple[int, ...]]] = {
    "dense": (_dense, (250, 1)),
    "dense, grown": (_dense, (250, 9)),
    "dense, empty": (_dense, ()),
    "window": (lambda: _dense(window=SIZE), (5, 1, 7)),
    "quantised": (lambda: _dense("kv8"), (253, 1)),
    "quantised, grown": (lambda: _dense("kv8/4:g32"), (253, 9)),
    "quantised, empty": (lambda: _dense("kv4"), ()),
    "turbo": (lambda: _dense("turbo:k8v3"), (253, 9)),
    "quantised ring": (lambda: _ring("kv4"), (3, 1)),
    "quantised ring, wrapped": (lambda: _ring("kv8", keep=2), (5, *(1,) * 9)),
    "ring": (_ring, (3, 1)),
    "ring, filled at once": (_ring, (13,)),
    "ring, wrapped": (_ring, (5, *(1,) * 9)),
    "ring, empty": (_ring, ()),
    "chunk": (_chunk, (5, 1)),
    "chunk, cut": (_chunk, (13, 1, 1)),
    "chunk, empty": (_chunk, ()),
    "state": (_state, (4, 1)),
    "state, empty": (_state, ()),
}
FORGETFUL = {
    "ring, filled at once": "ring of 8",
    "ring, wrapped": "ring of 8",
    "quantised ring, wrapped": "ring of 8",
    "chunk, cut": "is gone",
    "state": "state",
}
every_kind = pytest.mark.parametrize("name", list(CASES))
begun = [name for name in CASES if "empty" not in name]


def step(cache: LayerCache, tokens: int, rows: Sequence[int] = (0,)) -> mx.array:
    """Append what belongs at this position of each row, and return what a graph would read: [B, ...]."""

    def drawn(heads: int, what: int) -> mx.array:
        keys = [mx.random.key(1000 * row + 10 * cache.offset + what) for row in rows]
        return mx.concatenate([mx.random.normal((1, heads, tokens, DIM), key=key) for key in keys])

    if isinstance(cache, LayerKV):
        view = cache.append(drawn(2, 0), drawn(2, 1))
        return view.attend(drawn(4, 2), 0.125, Masks())
    assert isinstance(cache, StateKV)
    past, memory = cache.slots
    new = drawn(2, 0)  # [B, 2, L, E]
    seen = new if past is None else mx.concatenate([past, new], axis=2)
    memory = new.sum(axis=2) if memory is None else 0.5 * memory + new.sum(axis=2)
    cache.append(tokens, seen[:, :, -3:], memory)
    return memory


def run(cache: LayerCache, calls: Sequence[int], rows: Sequence[int] = (0,)) -> list[np.ndarray]:
    return [np.array(step(cache, tokens, rows)) for tokens in calls]


def filled(name: str, rows: Sequence[int] = (0,)) -> LayerCache:
    make, calls = CASES[name]
    cache = make()
    run(cache, calls, rows)
    return cache


def values(arrays: Sequence[mx.array | None]) -> list[Any]:
    """Copies that nothing can change."""
    return [None if a is None else np.array(a) for a in arrays]


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(
        (x is None and y is None) or (x is not None and y is not None and np.array_equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


def overwrite(cache: LayerCache) -> None:
    """In place, through the cache's own handles."""
    for array in cache.arrays():
        array[:] = mx.ones_like(array)


@every_kind
def test_what_is_restored_goes_on_as_before(name: str) -> None:
    cache, fresh = filled(name), CASES[name][0]()
    saved = cache.snapshot()
    held = cache.held()[0], values(cache.held()[1])
    first = run(cache, AFTER)
    for other in (cache, fresh):
        other.restore(saved)
        other.check()
        assert other.held()[0] == held[0]
        assert same(values(other.held()[1]), held[1])
        assert other.nbytes == saved.nbytes
        assert same(run(other, AFTER), first)


@every_kind
def test_a_snapshot_and_its_donor_do_not_see_each_other(name: str) -> None:
    donor, twin = filled(name), CASES[name][0]()
    saved = donor.snapshot()
    before = values(saved.arrays)
    twin.restore(saved)
    run(donor, AFTER)
    overwrite(donor)
    assert same(values(saved.arrays), before)
    assert same(values(twin.held()[1]), before)
    run(twin, AFTER)
    overwrite(twin)
    assert same(values(saved.arrays), before)
    donor.restore(saved)
    overwrite(twin)
    assert same(values(donor.held()[1]), before)
    donor.filter([0, 0])
    overwrite(donor)
    assert same(values(saved.arrays), before)


@pytest.mark.parametrize("name", begun)
def test_rows_are_joined_picked_and_cut_out_again(name: str) -> None:
    one, two = filled(name), filled(name, rows=(1,))
    held = [values(cache.held()[1]) for cache in (one, two)]
    both = one.merge([two])
    both.check()
    both.filter([1, 0])
    for row, expected in ((1, held[0]), (0, held[1])):
        assert same(values(both.extract(row).held()[1]), expected)
    assert both.extract(0).held()[0] == one.held()[0]
    apart = [run(both.extract(1), AFTER), run(both.extract(0), AFTER, rows=(1,))]
    together = run(both, AFTER, rows=(1, 0))
    overwrite(both)
    for cache, expected in zip((one, two), held, strict=True):
        assert same(values(cache.held()[1]), expected)
    assert same([t[1:] for t in together], apart[0])
    assert same([t[:1] for t in together], apart[1])
    assert same(run(one, AFTER), apart[0])


@pytest.mark.parametrize("name", [name for name in CASES if name not in begun])
def test_caches_that_have_not_begun_are_joined_to_one(name: str) -> None:
    both = filled(name).merge([filled(name)])
    assert (both.offset, both.arrays()) == (0, [])
    assert len(run(both, AFTER, rows=(0, 1))[0]) == 2


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidValue, match="like the first"):
        filled("dense").merge([filled("quantised")])
    with pytest.raises(InvalidValue, match="like the first"):
        filled("dense").merge([filled("dense, grown")])
    with pytest.raises(InvalidValue, match="all begun, or none"):
        filled("state").merge([_state()])
    with pytest.raises(InvalidValue, match=r"0\.\.0"):
        filled("ring").filter([1])
    later = filled("state")
    run(later, (2,))
    merged = filled("state").merge([later])  # of unequal length: a state is as long as any other
    assert merged.offset == later.offset
    assert same(values(merged.extract(1).held()[1]), values(later.held()[1]))


@pytest.mark.parametrize("name", [name for name in begun if name not in FORGETFUL])
def test_forgotten_tokens_were_never_there(name: str) -> None:
    cache, never = filled(name), filled(name)
    run(cache, (2, 1))
    cache.trim(3)
    cache.check()
    assert cache.offset == never.offset
    assert same(run(cache, AFTER), run(never, AFTER))
    for tokens in (-1, cache.offset + 1):
        with pytest.raises(InvalidValue, match="trim"):
            cache.trim(tokens)


@pytest.mark.parametrize(("name", "why"), FORGETFUL.items())
def test_what_cannot_forget_says_so_and_stays(name: str, why: str) -> None:
    cache = filled(name)
    held = cache.held()[0], values(cache.held()[1])
    with pytest.raises(InvalidValue, match=why):
        cache.trim(1)
    cache.trim(0)
    assert cache.held()[0] == held[0]
    assert same(values(cache.held()[1]), held[1])


def test_a_snapshot_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match="one of a cache of native rotating:8"):
        _ring().restore(filled("dense").snapshot())


@pytest.mark.parametrize(
    ("name", "marks", "arrays"),
    [
        ("dense", (300,), None),
        ("dense", (-1,), None),
        ("dense", (3,), (None, None)),
        ("quantised", (300,), None),
        ("ring", (6, 4), None),
        ("ring", (4, 99), None),
        ("chunk", (300, 0), None),
        ("state", (0,), None),
        ("state", (3,), (mx.zeros((1, 2)), mx.zeros((2, 2)))),
    ],
)
def test_a_broken_cache_is_found(name: str, marks: tuple[int, ...], arrays: Any) -> None:
    cache = filled(name)
    cache.check()
    cache.hold(marks, cache.held()[1] if arrays is None else arrays)
    with pytest.raises(InvalidValue):
        cache.check()
