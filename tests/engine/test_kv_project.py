"""What a projection says against what live caches hold: equal, whatever they are, keep and were appended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from engine import Engine, SamplingParams, errors, load, parse_kv
from engine.kv.base import LayerCache
from engine.kv.buffered import BufferedKV
from engine.kv.plan import KVPlan
from engine.kv.project import Projector, prefill_lengths
from engine.kv.recurrent import StateKV
from engine.kv.spec import CacheSpec

HEADS, DIMS = 2, (64, 128)
WINDOW, CHUNK = 48, 40
KINDS = {
    "dense": CacheSpec(head_dims=DIMS),
    "ring": CacheSpec(kind="rotating", size=WINDOW, head_dims=DIMS),
    "ring that keeps": CacheSpec(kind="rotating", size=WINDOW, keep=4, head_dims=DIMS),
    "large ring": CacheSpec(kind="rotating", size=270, head_dims=DIMS),
    "chunked": CacheSpec(kind="chunked", size=CHUNK, head_dims=DIMS),
    "state": CacheSpec(kind="state", slots=2),
}
SCHEMES = ("native", "kv8", "kv3:g32", "kv8/4:start=100", "turbo:k8v3", "kv4:g32:on-write")
# Forwards of a request: one chunk, several, cut by a chunk that divides the steps of a buffer and by ones that do not,
# and single tokens past the next step.
LENGTHS = (
    (),
    *((n,) for n in (1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 255, 256, 257)),
    (1, 255, 1),
    (256, 1, 1),
    *((*prefill_lengths(n, chunk), 1, 1) for n in (47, 300) for chunk in (32, 128, 512)),
    (48, 30, *(1,) * 20),
)


def appended(caches: list[LayerCache], length: int) -> None:
    """Keys and values of two dimensions and dtypes, and a state of two arrays, as a forward would leave them."""
    for cache in caches:
        if isinstance(cache, BufferedKV):
            cache.append(*(mx.ones((1, HEADS, length, dim), mx.float16) for dim in DIMS))
        elif isinstance(cache, StateKV):
            cache.append(length, mx.zeros((1, 3, 8), mx.float16), mx.zeros((1, 2, 4, 4)))


@pytest.mark.parametrize("kv", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_projection_is_what_live_caches_hold(kind: str, kv: str) -> None:
    specs = [KINDS[kind], KINDS["dense"]]  # the second can hold every scheme
    plan = KVPlan.build(parse_kv(kv if kv == "native" else f"{kv}:skip"), specs)
    projector = Projector(plan, lambda tokens, caches: appended(caches, tokens))
    for lengths in LENGTHS:
        live = plan.fresh()
        for length in lengths:
            appended(live, length)
            plan.convert(live)
        compare(projector.caches(lengths), live, lengths)


def compare(projected: Sequence[LayerCache], live: Sequence[LayerCache], lengths: Sequence[int]) -> None:
    """Same class and kind, counters, description, and arrays of the same shapes and dtypes."""
    for i, (ours, theirs) in enumerate(zip(projected, live, strict=True)):
        ours.check()
        assert (type(ours), ours.kind, ours.held()[0]) == (type(theirs), theirs.kind, theirs.held()[0]), lengths
        assert ours.describe(i) == theirs.describe(i), lengths
        assert [(a.shape, a.dtype) for a in ours.arrays()] == [(a.shape, a.dtype) for a in theirs.arrays()], lengths


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "state"])
def test_many_single_tokens_are_counted_at_once(kind: str) -> None:
    plan = KVPlan.build(parse_kv("native"), [KINDS[kind]])
    projector = Projector(plan, lambda tokens, caches: appended(caches, tokens))
    for lengths in ((), (1,), (30,), (WINDOW + 3,), (256,), (300, 45), (2, 1)):
        for ones in (0, 1, 2, 45, 257, 600):
            compare(projector.caches(lengths, ones), projector.caches((*lengths, *(1,) * ones)), (*lengths, ones))
    assert projector.nbytes((), 10**12) >= projector.nbytes((), 10**4)  # at once, or never


def test_a_projected_cache_goes_on_as_a_live_one() -> None:
    plan = KVPlan.build(parse_kv("kv4:g32:skip"), list(KINDS.values()))
    projector, live = Projector(plan, lambda tokens, caches: appended(caches, tokens)), plan.fresh()
    projected = projector.caches((128, 30))
    for length in (128, 30):
        appended(live, length)
        plan.convert(live)
    for length in (1, 64, 1, 1, 300, 1):
        for caches in (projected, live):
            appended(caches, length)
            plan.convert(caches)
        compare(projected, live, (128, 30, length))


@pytest.mark.parametrize(
    ("kind", "kv", "lengths"),
    [
        ("dense", "native", (512, *(1,) * 3)),
        ("dense", "native", (256, 256, 256, 256)),
        ("dense", "kv8", (512, 256, 1)),
        ("dense", "kv4:g32:on-write", (1024, 1)),
        ("dense", "kv8:start=600", (512, 256, 1)),
        ("large ring", "native", (256, 256, 64, 1, 1)),
        ("chunked", "native", (64, 256, 64)),
    ],
)
def test_the_peak_on_the_way_is_what_growing_and_converting_take(kind: str, kv: str, lengths: tuple[int, ...]) -> None:
    """Layer after layer, each evaluated. What is appended is there besides, as it comes and as it is stored. Values may
    grow after the old keys are gone or before, as MLX gets ahead of itself; a projection counts them all."""
    plan = KVPlan.build(parse_kv(f"{kv}:skip" if kv != "native" else kv), [KINDS[kind]] * 3)
    live = plan.fresh()
    work = 0
    mx.clear_cache()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    for length in lengths:
        for cache in live:
            appended([cache], length)
            mx.eval(cache.arrays())
        plan.convert(live)
        mx.eval([a for cache in live for a in cache.arrays()])
        work = max(work, 2 * HEADS * length * sum(DIMS) * 2)
    peak = mx.get_peak_memory() - held
    projected = Projector(plan, lambda tokens, caches: appended(caches, tokens)).peak_bytes(lengths)
    values = HEADS * DIMS[1] * 2 * max(cache.nbytes for cache in live) // (HEADS * sum(DIMS) * 2)
    assert peak - work <= projected <= peak + 2 * values
    assert projected > sum(cache.nbytes for cache in live)


def test_projecting_allocates_nothing() -> None:
    plan = KVPlan.build(parse_kv("kv8"), [KINDS["dense"]])
    projector = Projector(plan, lambda tokens, caches: appended(caches, tokens))
    mx.eval(mx.zeros(1))
    before = mx.get_active_memory()
    (cache,) = projector.caches(prefill_lengths(10**9, 2048))
    assert cache.nbytes > 10**11
    assert mx.get_active_memory() - before < 10**5


@pytest.mark.parametrize("kv", ["native", "kv8", "kv4:g32:start=150", "kv8:on-write", "turbo:k8v3", "mixed"])
def test_the_door_projects_what_a_request_leaves(llama_folder: Path, tmp_path: Path, kv: str) -> None:
    if kv == "mixed":
        plan = tmp_path / "kv_config.json"
        plan.write_text(json.dumps([{"layer_idx": 1, "bits": 4, "group_size": 32}]))
        kv = f"mixed:{plan}"
    with load(llama_folder, kv=kv, prefill_chunk=64) as engine:
        for prompt, new in ((1, 1), (2, 1), (100, 29), (251, 7), (257, 2)):
            projection = engine.project(prompt, new)
            ids = [2 + i % 90 for i in range(prompt)]
            live = engine.generate(ids, SamplingParams(max_tokens=new, ignore_eos=True)).caches
            assert projection.per_layer == live
            assert projection.kv_bytes == sum(layer.kv_bytes for layer in live)


@pytest.mark.parametrize(
    ("prompt", "new", "field"),
    [(0, 1, "prompt_tokens"), (1, -1, "max_tokens"), (1.5, 1, "prompt_tokens"), (True, 1, "prompt_tokens")],
)
def test_what_cannot_be_projected_is_refused(text_engine: Engine, prompt: int, new: int, field: str) -> None:
    with pytest.raises(errors.InvalidValue, match=field):
        text_engine.project(prompt, new)
