"""Score biases and chosen keys in attention, over every scheme, against the formula in NumPy on what is stored.

Letters: B rows, H query heads, K key/value heads, L queries, S keys, D head dimension.
"""

from __future__ import annotations

import itertools

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from engine.errors import InvalidValue
from engine.kv.base import KVView
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.request import parse_kv
from engine.kv.scheme import NATIVE, Scheme, scheme_of
from engine.kv.spec import CacheSpec

Floats = npt.NDArray[np.float64]

B, H, K, S, D, SCALE = 2, 4, 2, 9, 64, 0.125
SCHEMES = ("native", "kv8", "kv4:g32", "kv8/4", "turbo:k8v3")
# float32 sums of 64 products and of 9 weights, of numbers below 10.
ROUNDING = 1e-5
BIASES: tuple[tuple[int, ...], ...] = ((), (S,), (1, 1, S), (1, H, S), (B, H, S))  # S also stands for [L, S]
SELECTED: tuple[tuple[int, ...], ...] = ((), (S,), (B, 1, S), (B, H, S))


def drawn(*shape: int, seed: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def scheme(text: str) -> Scheme:
    every = parse_kv(text).every
    return NATIVE if every is None else scheme_of(every)


def parted(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (*shape[:-1], length, S) if shape else ()


def bias_of(shape: tuple[int, ...], length: int) -> mx.array | None:
    return drawn(*parted(shape, length), seed=4) if shape else None


def select_of(shape: tuple[int, ...], length: int) -> mx.array | None:
    """About half of the keys; a query's own and the first among them, so that none sees nothing."""
    if not shape:
        return None
    chosen = np.array(mx.random.bernoulli(0.5, parted(shape, length), key=mx.random.key(5)))
    chosen[..., 0] = True
    return mx.array(chosen)


def filled(text: str, length: int, window: int | None = None) -> tuple[KVView, mx.array, Floats, Floats]:
    """The view of the last `length` of S tokens, their queries, and all keys and values as they are stored."""
    keys, values = drawn(B, K, S, D, seed=1), drawn(B, K, S, D, seed=2)
    kind = scheme(text)
    cache = DenseKV(CacheSpec(window=window), kind)
    if length < S:
        cache.append(keys[:, :, :-length], values[:, :, :-length])
    view = cache.append(keys[:, :, -length:], values[:, :, -length:])
    stored = [np.array(side.unpack(side.pack(x))) for side, x in ((kind.keys, keys), (kind.values, values))]
    return view, drawn(B, H, length, D, seed=3), stored[0].astype(np.float64), stored[1].astype(np.float64)


def attended(
    queries: mx.array,
    keys: Floats,
    values: Floats,
    bias: mx.array | None,
    select: mx.array | None,
    sinks: mx.array | None = None,
    window: int = S,
) -> Floats:
    """softmax(q k^T * scale + bias) v over the keys that are neither later, nor out of the window, nor left out."""
    keys, values = (np.repeat(x, H // K, axis=1) for x in (keys, values))
    scores = np.array(queries).astype(np.float64) @ keys.swapaxes(-1, -2) * SCALE
    L = scores.shape[-2]
    if bias is not None:
        scores = scores + np.array(bias)
    apart = np.arange(S - L, S)[:, None] - np.arange(S)
    seen = np.broadcast_to((apart >= 0) & (apart < window), scores.shape)
    if select is not None:
        seen = seen & np.array(select)
    weights = np.where(seen, np.exp(scores), 0.0)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.array(sinks).astype(np.float64))[:, None, None]
    return np.asarray(weights / total @ values)


@pytest.mark.parametrize("length", [1, 4, S])
@pytest.mark.parametrize("text", SCHEMES)
def test_biases_are_added_and_only_chosen_keys_are_seen(text: str, length: int) -> None:
    view, queries, keys, values = filled(text, length)
    outs = []
    for shape, chosen in itertools.product(BIASES, SELECTED):
        bias, select = bias_of(shape, length), select_of(chosen, length)
        out = view.attend(queries, SCALE, Masks(), bias=bias, select=select)
        assert np.abs(np.array(out) - attended(queries, keys, values, bias, select)).max() < ROUNDING, (shape, chosen)
        outs.append(np.array(out))
    plain = outs[0]
    assert all(np.abs(out - plain).max() > 1e-3 for out in outs[1:])


@pytest.mark.parametrize("text", SCHEMES)
def test_windows_and_sinks_go_with_both(text: str) -> None:
    view, queries, keys, values = filled(text, 4, window=3)
    sinks = mx.array([0.0, 1.0, 2.0, -20.0])
    bias, select = bias_of((1, H, S), 4), select_of((B, H, S), 4)
    assert select is not None
    select = select | mx.eye(S, dtype=mx.bool_)[-4:]  # the own key, as the window hides the first
    out = view.attend(queries, SCALE, Masks(), bias=bias, select=select, sinks=sinks)
    expected = attended(queries, keys, values, bias, select, sinks, window=3)
    assert np.abs(np.array(out) - expected).max() < ROUNDING


@pytest.mark.parametrize("length", [1, 4, S])
@pytest.mark.parametrize("text", SCHEMES)
def test_a_bias_of_zero_and_a_choice_of_all_keys_change_no_bit(text: str, length: int) -> None:
    view, queries, _, _ = filled(text, length)
    plain = view.attend(queries, SCALE, Masks())
    nothing, everything = mx.zeros((B, H, length, S)), mx.ones((B, 1, length, S), dtype=mx.bool_)
    for bias, select in ((nothing, None), (None, everything), (nothing, everything)):
        assert mx.array_equal(view.attend(queries, SCALE, Masks(), bias=bias, select=select), plain)


@pytest.mark.parametrize("text", SCHEMES)
def test_a_softcap_takes_no_bias_and_on_packed_keys_nothing(text: str) -> None:
    view, queries, _, _ = filled(text, 4)
    bias, select = bias_of((S,), 4), select_of((B, H, S), 4)
    with pytest.raises(InvalidValue, match="soft-capped scores"):
        view.attend(queries, SCALE, Masks(), softcap=30.0, bias=bias)
    if text == "native":
        capped = view.attend(queries, SCALE, Masks(), softcap=1e4, select=select)
        assert mx.abs(capped - view.attend(queries, SCALE, Masks(), select=select)).max() < 1e-3


@pytest.mark.parametrize("text", SCHEMES)
def test_what_is_made_of_a_views_keys_is_seen_as_they_are(text: str) -> None:
    """Of latents a graph makes keys for every head."""
    view, queries, _, _ = filled(text, 4, window=3)
    keys, values = drawn(B, H, S, 32, seed=6), drawn(B, H, S, 16, seed=7)
    out = view.over(keys, values).attend(queries[..., :32], SCALE, Masks())
    alike = np.array(keys).astype(np.float64), np.array(values).astype(np.float64)
    scores = np.array(queries)[..., :32].astype(np.float64) @ alike[0].swapaxes(-1, -2) * SCALE
    apart = np.arange(S - 4, S)[:, None] - np.arange(S)
    weights = np.where((apart >= 0) & (apart < 3), np.exp(scores), 0.0)
    assert np.abs(np.array(out) - weights / weights.sum(-1, keepdims=True) @ alike[1]).max() < ROUNDING


def test_only_unpacked_keys_are_read_as_they_are() -> None:
    with pytest.raises(InvalidValue, match="reads keys as they are"):
        filled("kv8", 4)[0].dense()
