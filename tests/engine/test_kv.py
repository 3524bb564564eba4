"""KV schemes: notation, planning, live proof and the equality of the two ways to quantise."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, parse_kv
from engine.kv.base import live_scheme
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.plan import KVPlan
from engine.kv.request import LayerRequest
from engine.kv.rotating import RotatingKV
from engine.kv.scheme import NATIVE, Scheme, scheme_of
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
        ("mixed:some/dir:x.json:start=7:skip", "mixed:some/dir:x.json:start=7:skip"),
        ("kv8/4", "kv8/4"),
        ("kv4/4:g32", "kv4:g32"),
        ("kv8/4:on-write:g32", "kv8/4:g32:on-write"),
        ("turbo:k8v3", "turbo:k8v3"),
        ("turbo:k4v2:on-write", "turbo:k4v2:on-write"),
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
        "kv8/7",
        "kv8/4/2",
        "native:start=3",
        "kv8:on-write:on-write",
    ],
)
def test_bad_notation_names_what_is_allowed(text: str) -> None:
    with pytest.raises(errors.InvalidValue, match="kv8, kv4"):
        parse_kv(text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("turbo:k3v3", "k{2,4,5,8}"), ("turbo:k8v7", "v{2,3,4,5,8}"), ("kv8:start=4:on-write", "not both")],
)
def test_what_cannot_be_is_said(text: str, allowed: str) -> None:
    with pytest.raises(errors.InvalidValue, match=re.escape(allowed)):
        parse_kv(text)


def _cache(dim: int, **fields: Any) -> CacheSpec:
    return CacheSpec(head_dims=(dim, dim), **fields)


STATE = CacheSpec(kind="state", slots=2)


@pytest.mark.parametrize(
    ("kv", "cache", "words"),
    [
        ("kv8", _cache(64, kind="chunked", size=8), "keeps its keys chunked:8.*layer 1"),
        ("kv8", _cache(32), "head_dim 32: .32.*layer 1"),
        ("kv8", _cache(64, only_native="soft-caps its attention scores"), "it soft-caps.*layer 1"),
        ("turbo:k8v3", _cache(64, kind="rotating", size=8), "keeps rotating:8.*layer 1"),
        ("turbo:k8v3", _cache(96), "head_dim=96.*64, 128, 256, 512"),
    ],
)
def test_a_layer_that_cannot_hold_it_refuses_at_planning_or_is_skipped_and_said(
    kv: str, cache: CacheSpec, words: str
) -> None:
    with pytest.raises(errors.InvalidValue, match=words):
        KVPlan.build(parse_kv(kv), [_cache(64), cache])
    plan = KVPlan.build(parse_kv(f"{kv}:skip"), [_cache(64), cache])
    named, skipped = plan.describe()
    assert named in ("affine8:g64", "turbo:k8v3")
    assert skipped.startswith("native (skipped: ")


def test_a_state_stays_native_and_says_so_unless_a_plan_names_it(tmp_path: Path) -> None:
    assert KVPlan.build(parse_kv("kv8"), [STATE, _cache(64)]).describe() == (
        "native (a recurrent state has no keys)",
        "affine8:g64",
    )
    path = tmp_path / "kv.json"
    path.write_text(json.dumps([{"layer_idx": 0, "bits": 8}, {"layer_idx": 1, "bits": 4}]))
    with pytest.raises(errors.InvalidValue, match=r"recurrent state has no keys.*layer 0"):
        KVPlan.build(parse_kv(f"mixed:{path}"), [STATE, _cache(64)])
    plan = KVPlan.build(parse_kv(f"mixed:{path}:skip"), [STATE, _cache(64)])
    assert plan.caches[1].scheme.name == "affine4:g64"


@pytest.mark.parametrize("caches", [[STATE], [_cache(64, kind="chunked", size=8)]])
def test_a_request_that_no_layer_can_hold_is_refused_even_with_skip(caches: list[CacheSpec]) -> None:
    with pytest.raises(errors.InvalidValue, match="no layer of this model can hold it"):
        KVPlan.build(parse_kv("kv8:skip"), caches)


def test_a_mixed_plan_names_each_layer(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    entries = [{"layer_idx": 2, "k_bits": 8, "v_bits": 4, "group_size": 32}, {"layer_idx": 0, "bits": 4}]
    path.write_text(json.dumps(entries))
    plan = KVPlan.build(parse_kv(f"mixed:{path}"), [_cache(64)] * 3)
    assert plan.describe() == ("affine4:g64", "native", "affine8/4:g32")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"layer_idx": 0, "bits": 7}, "bits=7"),
        ({"layer_idx": 0, "bits": True}, "bits=True"),
        ({"layer_idx": 0, "bits": 8, "group_size": 48}, "group=48"),
        ({"layer_idx": 9, "bits": 8}, "layer_idx=9"),
        ({"layer_idx": 0, "bits": 8, "v_bits": 4, "k_bits": 8}, "is not {layer_idx"),
        ({"layer_idx": 0, "k_bits": 8}, "is not {layer_idx"),
        ({"layer_idx": 0, "bits": 8, "mode": "x"}, "is not {layer_idx"),
    ],
)
def test_a_bad_entry_of_a_mixed_plan_is_named(tmp_path: Path, entry: dict[str, object], words: str) -> None:
    path = tmp_path / "kv.json"
    path.write_text(json.dumps([entry]))
    with pytest.raises((errors.InvalidValue, errors.CorruptFile), match=words):
        KVPlan.build(parse_kv(f"mixed:{path}"), [_cache(64)])


def _tokens(n: int, seed: int) -> mx.array:
    return mx.random.normal((1, 2, n, 64), key=mx.random.key(seed))


def _scheme(text: str) -> Scheme:
    every = parse_kv(text).every
    return NATIVE if every is None else scheme_of(every)


def _dense(text: str = "native") -> DenseKV:
    return DenseKV(_cache(64), _scheme(text))


PACKED = ("kv2", "kv3", "kv4", "kv5", "kv6", "kv8", "kv8/4", "kv4/2:g32", "turbo:k8v3", "turbo:k4v5", "turbo:k2v8")


@pytest.mark.parametrize("text", PACKED)
def test_converting_a_filled_cache_and_packing_on_append_store_the_same_bytes(text: str) -> None:
    keys, values = _tokens(1300, 1), _tokens(1300, 2)
    filled, direct = _dense(), _dense(text)
    for start, end in ((0, 1250), (1250, 1270), (1270, 1300)):
        filled.append(keys[:, :, start:end], values[:, :, start:end])
        direct.append(keys[:, :, start:end], values[:, :, start:end])
    converted = filled.converted(_scheme(text))
    assert converted.offset == direct.offset == 1300
    assert len(converted.arrays()) == len(direct.arrays()) > 2
    for a, b in zip(converted.arrays(), direct.arrays(), strict=True):
        assert mx.array_equal(a[:, :, :1300], b[:, :, :1300])


@pytest.mark.parametrize("text", ["native", *PACKED])
def test_attention_does_not_depend_on_how_the_tokens_arrived(text: str) -> None:
    keys, values, queries = _tokens(300, 1), _tokens(300, 2), mx.random.normal((1, 4, 300, 64), key=mx.random.key(3))
    whole = _dense(text).append(keys, values).attend(queries, 0.125, Masks())
    cache, parts = _dense(text), []
    for start, end in ((0, 256), (256, 299), (299, 300)):
        view = cache.append(keys[:, :, start:end], values[:, :, start:end])
        parts.append(view.attend(queries[:, :, start:end], 0.125, Masks()))
    assert mx.array_equal(whole, mx.concatenate(parts, axis=2))


@pytest.mark.parametrize("text", PACKED)
def test_packed_attention_is_near_native_in_the_order_of_its_bits(text: str) -> None:
    keys, values, queries = _tokens(64, 1), _tokens(64, 2), mx.random.normal((1, 4, 1, 64), key=mx.random.key(3))
    native = _dense().append(keys, values).attend(queries, 0.125, Masks())
    gap = mx.abs(native - _dense(text).append(keys, values).attend(queries, 0.125, Masks())).max().item()
    narrow = min(int(c) for c in text.split(":g")[0] if c.isdigit())
    assert 0 < gap < 4 / 2**narrow


def test_a_wide_scheme_with_equal_bits_is_the_uniform_one() -> None:
    keys, values = _tokens(9, 1), _tokens(9, 2)
    uniform, apart = _dense("kv4"), DenseKV(_cache(64), scheme_of(LayerRequest(bits=4, value_bits=4)))
    for a, b in zip(uniform.append(keys, values).keys, apart.append(keys, values).keys, strict=True):  # type: ignore[attr-defined]
        assert mx.array_equal(a, b)


def test_a_large_softcap_approaches_plain_attention_and_a_small_one_does_not() -> None:
    keys, values, queries = _tokens(9, 1), _tokens(9, 2), mx.random.normal((1, 4, 9, 64), key=mx.random.key(3))
    plain = _dense().append(keys, values).attend(queries, 0.125, Masks())
    wide = _dense().append(keys, values).attend(queries, 0.125, Masks(), softcap=1e4)
    tight = _dense().append(keys, values).attend(queries, 0.125, Masks(), softcap=0.5)
    assert mx.abs(plain - wide).max().item() < 1e-3
    assert mx.abs(plain - tight).max().item() > 1e-2


def test_sinks_take_weight_from_packed_keys_as_from_native_ones() -> None:
    keys, values, queries = _tokens(40, 1), _tokens(40, 2), mx.random.normal((1, 4, 3, 64), key=mx.random.key(3))
    sinks = mx.array([0.0, 1.0, 2.0, -20.0])
    native = _dense().append(keys, values).attend(queries, 0.125, Masks(), sinks=sinks)
    packed = _dense("kv8").append(keys, values).attend(queries, 0.125, Masks(), sinks=sinks)
    without = _dense("kv8").append(keys, values).attend(queries, 0.125, Masks())
    assert mx.abs(native - packed).max().item() < 0.02
    gaps = mx.abs(packed - without).max(axis=(0, 2, 3)).tolist()
    assert isinstance(gaps, list)
    assert gaps[3] < 1e-5 < 1e-3 < min(gaps[:3])


def test_the_schedule_converts_at_its_start_and_says_what_is_live() -> None:
    plan = KVPlan.build(parse_kv("kv4:start=10"), [_cache(64), _cache(64)])
    caches = plan.fresh()
    for cache in caches:
        cache.append(_tokens(9, 1), _tokens(9, 2))  # type: ignore[attr-defined]
    plan.convert(caches)
    assert live_scheme(caches) == "native"
    assert plan.status(caches) == "native (start not reached)"
    caches[0].append(_tokens(1, 3), _tokens(1, 4))  # type: ignore[attr-defined]
    plan.convert(caches)
    assert live_scheme(caches) == "mixed"
    caches[1].append(_tokens(1, 3), _tokens(1, 4))  # type: ignore[attr-defined]
    plan.convert(caches)
    assert plan.status(caches) == live_scheme(caches) == "affine4:g64"
    layer = caches[0].describe(0)
    assert (layer.bits, layer.group_size, layer.dtype, layer.offset) == (4, 64, "uint32", 10)
    assert layer.kv_bytes == sum(a.nbytes for a in caches[0].arrays()) > 0


def test_on_write_packs_from_the_first_token() -> None:
    plan = KVPlan.build(parse_kv("kv4:on-write"), [_cache(64)])
    (cache,) = plan.fresh()
    assert plan.status([cache]) == "affine4:g64"
    cache.append(_tokens(3, 1), _tokens(3, 2))  # type: ignore[attr-defined]
    assert cache.describe(0).scheme == "affine4:g64"


@pytest.mark.parametrize("text", ["native", "kv8", "kv4:g32"])
def test_a_converted_ring_goes_on_as_one_that_packed_on_append(text: str) -> None:
    spec = _cache(64, kind="rotating", size=16, keep=2)
    filled, direct = RotatingKV(spec, NATIVE), RotatingKV(spec, _scheme(text))
    keys, values, queries = _tokens(60, 1), _tokens(60, 2), mx.random.normal((1, 4, 60, 64), key=mx.random.key(3))
    cuts = [0, 5, 6, 7, 30, 31, 32, 33, 40]
    for start, end in itertools.pairwise(cuts):
        for cache in (filled, direct):
            cache.append(keys[:, :, start:end], values[:, :, start:end])
    converted = filled.converted(_scheme(text))
    for start, end in ((40, 41), (41, 45), (45, 46), (46, 60)):
        out = [
            cache.append(keys[:, :, start:end], values[:, :, start:end]).attend(queries[:, :, start:end], 0.1, Masks())
            for cache in (converted, direct)
        ]
        assert mx.array_equal(*out)
    assert converted.describe(0).layout == "rotating:16"


def test_packed_caches_are_smaller_by_bits() -> None:
    sizes = []
    for text in ("native", "kv8", "kv4", "kv8/4", "turbo:k8v3"):
        cache = _dense(text)
        cache.append(_tokens(256, 1), _tokens(256, 2))
        sizes.append(cache.describe(0).kv_bytes)
    per_value = [size / (2 * 2 * 256 * 64) for size in sizes]
    turbo = (1 + 4 / 32 + 3 / 8 + 2 / 32) / 2
    assert per_value == [4.0, 1.0 + 8 / 64, 0.5 + 8 / 64, 0.75 + 8 / 64, turbo]
