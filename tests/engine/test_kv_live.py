"""A scheme that is asked for is on: what the live caches are, after everything that can be done to them.

Bits, groups and bytes are worked out here from the notation, and compared with what `describe` reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mlx.core as mx
import pytest

from engine import CacheLayer, SamplingParams, load, parse_kv
from engine.kv.base import LayerCache, LayerKV, live_scheme
from engine.kv.codec import Identity, read_caches, write_caches
from engine.kv.plan import KVPlan
from engine.kv.request import LayerRequest
from engine.kv.spec import CacheSpec
from oracles.tiny import RECIPES, tiny_model

HEADS, DIM, LAYERS, FLOAT32 = 2, 64, 3, 4
KINDS = {
    "dense": CacheSpec(head_dims=(DIM, DIM)),
    "ring": CacheSpec(kind="rotating", size=8, window=8, head_dims=(DIM, DIM)),
}
AFFINE = ("kv2", "kv3", "kv4:g32", "kv5", "kv6", "kv8", "kv8/4", "kv4/8:g32", "kv8:on-write", "kv8/4:on-write")
TURBO = ("turbo:k8v3", "turbo:k2v8:on-write")
MIXED = "mixed"
CASES = [("dense", kv) for kv in ("native", *AFFINE, *TURBO, MIXED)] + [("ring", kv) for kv in (*AFFINE, MIXED)]
ENTRIES = [{"layer_idx": 0, "bits": 8}, {"layer_idx": 2, "k_bits": 8, "v_bits": 4, "group_size": 32}]
Caches = list[LayerCache]


def _notation(kv: str, folder: Path) -> str:
    if kv != MIXED:
        return kv
    path = folder / "kv_config.json"
    path.write_text(json.dumps(ENTRIES))
    return f"mixed:{path}"


def _bytes_per_token(asked: LayerRequest | None) -> Fraction:
    """Of one head: codes, and a scale and a zero for each group, one less for TurboQuant's values."""
    if asked is None:
        return Fraction(2 * DIM * FLOAT32)
    codes = Fraction(DIM * (asked.bits + asked.value_bits), 8)
    groups = Fraction(DIM, asked.group_size)
    return codes + groups * (3 * 2 if asked.turbo else 4 * FLOAT32)


def proven(layers: list[CacheLayer], kv: str) -> None:
    """Each layer is what `kv` asks of it, in storage and in bytes."""
    asked = parse_kv(kv).layers(len(layers))
    for layer, one in zip(layers, asked, strict=True):
        found = (layer.scheme, layer.bits, layer.value_bits, layer.group_size, layer.dtype)
        if one is None:
            assert found == ("native", None, None, None, "float32")
        else:
            dtype = "uint8" if one.turbo else "uint32"
            assert found == (one.name, one.bits, one.value_bits, one.group_size, dtype)
        tokens = Fraction(layer.kv_bytes, HEADS) / _bytes_per_token(one)
        assert tokens.denominator == 1
        assert tokens >= (layer.offset if layer.layout == "full" else min(layer.offset, 8))


def step(plan: KVPlan, caches: Caches, tokens: int, rows: int = 1) -> None:
    for cache in caches:
        assert isinstance(cache, LayerKV)
        drawn = mx.random.normal((2, rows, HEADS, tokens, DIM), key=mx.random.key(cache.offset))
        cache.append(drawn[0], drawn[1])
    plan.convert(caches)


def _restored(plan: KVPlan, caches: Caches, folder: Path) -> Caches:
    saved = [cache.snapshot() for cache in caches]
    step(plan, caches, 3)
    for cache, each in zip(caches, saved, strict=True):
        cache.restore(each)
    return caches


def _read(plan: KVPlan, caches: Caches, folder: Path) -> Caches:
    identity = Identity.of("abc", "float32", plan, 32)
    write_caches(folder / "row.kv", caches, identity)
    return read_caches(folder / "row.kv", plan, identity)


def _trimmed(plan: KVPlan, caches: Caches, folder: Path) -> Caches:
    for cache in caches:
        cache.trim(2)
    return caches


def _extended(plan: KVPlan, caches: Caches, folder: Path) -> Caches:
    for cache in caches:
        cache.extend([cache])
        cache.filter([1])
    return caches


PATHS: dict[str, Callable[[KVPlan, Caches, Path], Caches]] = {
    "filled": lambda plan, caches, folder: caches,
    "snapshot and restore": _restored,
    "file": _read,
    "trim": _trimmed,
    "merge and extract": lambda plan, caches, folder: [cache.merge([cache]).extract(1) for cache in caches],
    "extend and filter": _extended,
}


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize(("kind", "kv"), CASES)
def test_a_scheme_stays_on(kind: str, kv: str, path: str, tmp_path: Path) -> None:
    notation = _notation(kv, tmp_path)
    plan = KVPlan.build(parse_kv(notation), [KINDS[kind]] * LAYERS)
    caches = plan.fresh()
    for tokens in (4, 1):
        step(plan, caches, tokens)
    names = set(plan.describe())
    for again in (False, True):
        if again:
            step(plan, caches, 1)
        else:
            caches = PATHS[path](plan, caches, tmp_path)
        proven([cache.describe(i) for i, cache in enumerate(caches)], notation)
        assert plan.status(caches) == live_scheme(caches) == (names.pop() if len(names) == 1 else "mixed")
        names = set(plan.describe())
        assert all(cache.describe(0).kv_bytes == cache.nbytes for cache in caches)


@pytest.mark.parametrize(
    "kv", ["native", "kv4", "kv8/4:g32", "kv8:on-write", "turbo:k8v3", "turbo:k4v4:on-write", MIXED]
)
@pytest.mark.parametrize("chunk", [2048, 7])
def test_a_request_runs_on_the_scheme_it_was_planned_with(kv: str, chunk: int, tmp_path: Path) -> None:
    assert RECIPES["qwen3"].head_dim == DIM
    notation = _notation(kv, tmp_path)
    with load(tiny_model("qwen3"), kv=notation, prefill_chunk=chunk) as engine:
        done = engine.generate(list(range(2, 22)), SamplingParams(max_tokens=3, ignore_eos=True))
        traced = engine.trace(list(range(2, 22)), chunk=chunk, tail=2)
    for caches, status in ((done.caches, done.kv_status), (traced.caches, traced.kv_status)):
        proven(list(caches), notation)
        assert tuple(layer.scheme for layer in caches) == done.plan.kv_layers
        assert status == ("mixed" if kv == MIXED else done.plan.kv_layers[0])
    assert traced.kv_live[-1] == status


@pytest.mark.parametrize("kv", ["kv4:start=30", "kv8/4:start=30", "turbo:k8v3:start=30"])
def test_a_start_that_is_not_reached_is_said(kv: str) -> None:
    with load(tiny_model("qwen3"), kv=kv) as engine:
        short = engine.generate(list(range(2, 12)), SamplingParams(max_tokens=3, ignore_eos=True))
        long = engine.generate(list(range(2, 40)), SamplingParams(max_tokens=3, ignore_eos=True))
    assert short.kv_status == "native (start not reached)"
    assert {layer.scheme for layer in short.caches} == {"native"}
    assert long.kv_status == long.plan.kv_layers[0]
    proven(list(long.caches), kv)


def test_what_is_not_on_is_found() -> None:
    plan = KVPlan.build(parse_kv("kv8"), [KINDS["dense"]])
    caches = plan.fresh()
    caches[0].append(mx.zeros((1, HEADS, 3, DIM)), mx.zeros((1, HEADS, 3, DIM)))  # type: ignore[attr-defined]
    for kv in ("kv8", "kv4"):  # native still; then of another width
        with pytest.raises(AssertionError):
            proven([caches[0].describe(0)], kv)
        plan.convert(caches)
    proven([caches[0].describe(0)], "kv8")
