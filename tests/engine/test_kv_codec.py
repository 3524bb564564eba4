"""Caches on disk: what was written comes back and goes on equally; what belongs to something else is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, parse_kv
from engine.kv.base import LayerCache, LayerKV
from engine.kv.codec import Identity, read_caches, write_caches
from engine.kv.masks import Masks
from engine.kv.plan import KVPlan
from engine.kv.recurrent import StateKV
from engine.kv.spec import CacheSpec

SPECS = [
    CacheSpec(head_dims=(64, 64)),
    CacheSpec(kind="rotating", size=8, window=8, head_dims=(64, 64)),
    CacheSpec(kind="state", slots=2),
]
REQUESTS = ("native", "kv8", "kv8/4:g32", "kv4:on-write", "kv4:start=20", "turbo:k8v3:skip")


def step(cache: LayerCache, tokens: int) -> mx.array:
    """Append what belongs at this position, and return what a graph would read."""
    drawn = [mx.random.normal((1, 2, tokens, 64), key=mx.random.key(10 * cache.offset + i)) for i in range(3)]
    if isinstance(cache, LayerKV):
        return cache.append(drawn[0], drawn[1]).attend(drawn[2], 0.125, Masks())
    assert isinstance(cache, StateKV)
    cache.append(tokens, None, drawn[0].sum(axis=2))
    return drawn[0]


def run(plan: KVPlan, caches: list[LayerCache], calls: tuple[int, ...]) -> list[mx.array]:
    out = []
    for tokens in calls:
        out += [step(cache, tokens) for cache in caches]
        plan.convert(caches)
    return out


@pytest.mark.parametrize("kv", REQUESTS)
@pytest.mark.parametrize("calls", [(), (5, 1), (13, 1, 9)])
def test_what_was_written_goes_on_equally(tmp_path: Path, kv: str, calls: tuple[int, ...]) -> None:
    plan = KVPlan.build(parse_kv(kv), SPECS)
    identity = Identity.of("abc", "float32", plan, chunk=32)
    caches = plan.fresh()
    run(plan, caches, calls)
    path = tmp_path / "row.kv"
    write_caches(path, caches, identity)
    assert [p.name for p in tmp_path.iterdir()] == ["row.kv"]
    again = read_caches(path, plan, identity)
    assert [c.describe(0) for c in again] == [c.describe(0) for c in caches]
    for ours, theirs in zip(run(plan, again, (1, 3)), run(plan, caches, (1, 3)), strict=True):
        assert mx.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_sha256": "other"}, "model_sha256"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"plan": ("kv4",)}, "plan"),
        ({"every": 64}, "every"),
    ],
)
def test_what_belongs_to_something_else_is_refused(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    plan = KVPlan.build(parse_kv("kv8"), SPECS)
    identity = Identity.of("abc", "float32", plan, chunk=32)
    caches = plan.fresh()
    run(plan, caches, (3,))
    path = tmp_path / "row.kv"
    write_caches(path, caches, identity)
    with pytest.raises(errors.InvalidValue, match=word):
        read_caches(path, plan, replace(identity, **change))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    plan = KVPlan.build(parse_kv("native"), SPECS)
    identity = Identity.of("abc", "float32", plan, chunk=32)
    path = tmp_path / "row.kv"
    caches = plan.fresh()
    run(plan, caches, (3,))
    write_caches(path, caches, identity)
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-9], b"x" * 64):
        path.write_bytes(damaged)
        with pytest.raises(errors.CorruptFile, match=r"row\.kv"):
            read_caches(path, plan, identity)
    mx.save_safetensors(str(tmp_path / "other.safetensors"), {"a": mx.zeros((2,))})
    with pytest.raises(errors.CorruptFile):
        read_caches(tmp_path / "other.safetensors", plan, identity)
    with pytest.raises(errors.CorruptFile):
        read_caches(tmp_path / "absent", plan, identity)
