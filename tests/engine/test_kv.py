"""KV schemes: notation, planning, live proof and the equality of the two ways to quantise."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine import errors, parse_kv
from engine.kv.base import live_scheme
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.plan import KVPlan
from engine.kv.quantized import QuantizedKV
from engine.kv.spec import CacheSpec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("native", "native"),
        ("bf16", "native"),
        ("kv8", "kv8"),
        ("kv4:g64", "kv4"),
        ("kv4:g32", "kv4:g32"),
        ("kv8:start=5000", "kv8:start=5000"),
        ("kv8:start=0:g128", "kv8:g128"),
        ("mixed:some/dir:x.json", "mixed:some/dir:x.json"),
    ],
)
def test_notation_round_trips(text: str, canonical: str) -> None:
    assert str(parse_kv(text)) == canonical
    assert parse_kv(canonical) == parse_kv(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kv",
        "kv7",
        "kv16",
        "8",
        "kv8:g48",
        "kv8:x32",
        "kv²",
        "kv8:start=²",
        "kv8:g32:g64",
        "kv8:start=-1",
        "kv8:",
        "mixed:",
        "int4",
    ],
)
def test_bad_notation_names_what_is_allowed(text: str) -> None:
    with pytest.raises(errors.InvalidValue, match="kv8, kv4"):
        parse_kv(text)


def _cache(dim: int, **fields: Any) -> CacheSpec:
    return CacheSpec(head_dims=(dim, dim), **fields)


def test_a_sliding_layer_refuses_quantised_kv_at_planning() -> None:
    with pytest.raises(errors.InvalidValue, match="layer 0 keeps its keys rotating:8"):
        KVPlan.build(parse_kv("kv8"), [_cache(64, kind="rotating", size=8, window=8)])


def test_a_group_that_does_not_divide_the_head_is_refused_at_planning() -> None:
    with pytest.raises(errors.InvalidValue, match="head_dim 32 of layer 1"):
        KVPlan.build(parse_kv("kv8"), [_cache(64), _cache(32)])


def test_soft_capped_attention_refuses_quantised_kv_at_planning() -> None:
    with pytest.raises(errors.InvalidValue, match="layer 0 soft-caps"):
        KVPlan.build(parse_kv("kv8"), [_cache(64, only_native="soft-caps its attention scores")])


def test_mixed_is_refused_until_it_is_built() -> None:
    with pytest.raises(errors.NotBuilt):
        KVPlan.build(parse_kv("mixed:x.json"), [_cache(64)])


def _tokens(n: int, seed: int) -> mx.array:
    return mx.random.normal((1, 2, n, 64), key=mx.random.key(seed))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_converting_a_filled_cache_and_quantising_on_append_store_the_same_bytes(bits: int) -> None:
    keys, values = _tokens(300, 1), _tokens(300, 2)
    dense, direct = DenseKV(), QuantizedKV(bits, 64)
    for start, end in ((0, 250), (250, 270), (270, 300)):
        dense.append(keys[:, :, start:end], values[:, :, start:end])
        direct.append(keys[:, :, start:end], values[:, :, start:end])
    converted = QuantizedKV.from_dense(dense, bits, 64)
    assert converted.offset == direct.offset == 300
    for a, b in zip(converted.arrays(), direct.arrays(), strict=True):
        assert mx.array_equal(a[:, :, :300], b[:, :, :300])


@pytest.mark.parametrize("make", [DenseKV, lambda: QuantizedKV(8, 64)])
def test_attention_does_not_depend_on_how_the_tokens_arrived(make) -> None:  # type: ignore[no-untyped-def]
    keys, values, queries = _tokens(300, 1), _tokens(300, 2), mx.random.normal((1, 4, 300, 64), key=mx.random.key(3))
    whole = make().append(keys, values).attend(queries, 0.125, Masks())
    cache, parts = make(), []
    for start, end in ((0, 256), (256, 299), (299, 300)):
        view = cache.append(keys[:, :, start:end], values[:, :, start:end])
        parts.append(view.attend(queries[:, :, start:end], 0.125, Masks()))
    assert mx.array_equal(whole, mx.concatenate(parts, axis=2))


def test_a_large_softcap_approaches_plain_attention_and_a_small_one_does_not() -> None:
    keys, values, queries = _tokens(9, 1), _tokens(9, 2), mx.random.normal((1, 4, 9, 64), key=mx.random.key(3))
    plain = DenseKV().append(keys, values).attend(queries, 0.125, Masks())
    wide = DenseKV().append(keys, values).attend(queries, 0.125, Masks(), softcap=1e4)
    tight = DenseKV().append(keys, values).attend(queries, 0.125, Masks(), softcap=0.5)
    assert mx.abs(plain - wide).max().item() < 1e-3
    assert mx.abs(plain - tight).max().item() > 1e-2


def test_the_schedule_converts_at_its_start_and_says_what_is_live() -> None:
    plan = KVPlan.build(parse_kv("kv4:start=10"), [_cache(64), _cache(64)])
    caches = plan.fresh()
    for cache in caches:
        cache.append(_tokens(9, 1), _tokens(9, 2))
    plan.convert(caches)
    assert live_scheme(caches) == "native"
    assert plan.status(caches) == "native (start not reached)"
    caches[0].append(_tokens(1, 3), _tokens(1, 4))
    plan.convert(caches)
    assert live_scheme(caches) == "mixed"
    caches[1].append(_tokens(1, 3), _tokens(1, 4))
    plan.convert(caches)
    assert plan.status(caches) == live_scheme(caches) == "affine4:g64"
    layer = caches[0].describe(0)
    assert (layer.bits, layer.group_size, layer.dtype, layer.offset) == (4, 64, "uint32", 10)
    assert layer.kv_bytes == sum(a.nbytes for a in caches[0].arrays()) > 0


def test_quantised_caches_are_smaller_by_bits() -> None:
    sizes = []
    for cache in (DenseKV(), QuantizedKV(8, 64), QuantizedKV(4, 64)):
        cache.append(_tokens(256, 1), _tokens(256, 2))
        sizes.append(cache.describe(0).kv_bytes)
    per_value = [size / (2 * 2 * 256 * 64) for size in sizes]
    assert per_value == [4.0, 1.0 + 8 / 64, 0.5 + 8 / 64]
