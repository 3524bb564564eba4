"""Packed on write: where calls begin is not in the bits, or is pinned, and prefixes are published only where it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from built_models import build, load

from engine import errors, parse_kv
from engine.graph.model import Model
from engine.kv.base import LayerCache
from engine.kv.codec import Identity, read_caches, write_caches
from engine.kv.plan import KVPlan
from engine.kv.publish import planned_every, require_boundary
from engine.kv.spec import CacheSpec
from oracles.tiny import tiny_model

# What is packed on write, and every how many tokens a prefix may be published, None for the chunk's multiples.
RECIPES = {"qwen3": 1, "qwen3_next": 1, "gemma3_text": None, "gpt_oss": None, "falcon_h1": 256}
SCHEMES = ("kv8:g32", "kv4:g32", "kv8/4:g32")
TURBO = "turbo"  # a model with heads of 64
PROMPT, DECODED = 70, (1, 1, 5)
LATENT = CacheSpec(head_dims=(64, 16), only_native="attends the latent that it keeps", block=None)
DENSE, STATE = CacheSpec(head_dims=(64, 64)), CacheSpec(kind="state", slots=2)
SCAN = CacheSpec(kind="state", slots=2, block=256)
RING = CacheSpec(kind="rotating", size=8, window=8, head_dims=(64, 64), block=None)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield build(RECIPES, tmp_path_factory.mktemp("models"))
    load.cache_clear()


class Row:
    """A model's caches under a request, and the logits of what runs over them."""

    def __init__(self, model: Model, kv: str) -> None:
        self.model = model
        self.plan = KVPlan.build(parse_kv(kv), model.spec.caches)
        self.caches: list[LayerCache] = self.plan.fresh()
        self.ids = np.random.default_rng(7).integers(2, model.spec.vocab, 700)

    def run(self, *calls: int) -> np.ndarray:
        """The next tokens, in calls of so many: their logits [L, V]."""
        parts = []
        for tokens in calls:
            at = max(cache.offset for cache in self.caches)
            ids = mx.array(self.ids[at : at + tokens])[None]
            logits = self.model.decoder.project(self.model.decoder.forward_hidden(ids, self.caches))
            self.plan.convert(self.caches)
            mx.eval(logits, [cache.arrays() for cache in self.caches])
            parts.append(np.array(logits[0]))
        return np.concatenate(parts)


def calls_to(start: int, end: int, chunk: int) -> list[int]:
    return [min(chunk, end - at) for at in range(start, end, chunk)]


@pytest.mark.parametrize("kv", [*SCHEMES, "turbo:k8v3", "turbo:k4v4"])
def test_full_attention_has_the_same_bits_however_a_prompt_is_cut(kv: str, root: Path) -> None:
    model = load(tiny_model("qwen3") if kv.startswith(TURBO) else root / "qwen3")
    whole = Row(model, f"{kv}:on-write").run(40)
    for calls in ((32, 8), (1,) * 40, (3, 1, 30, 1, 5)):
        assert np.array_equal(Row(model, f"{kv}:on-write").run(*calls), whole), calls


@pytest.mark.parametrize(("name", "kv"), [*itertools.product(RECIPES, SCHEMES[1:]), (TURBO, "turbo:k8v3")])
def test_whoever_goes_on_from_a_published_prefix_computes_what_a_cold_run_does(
    name: str, kv: str, root: Path, tmp_path: Path
) -> None:
    """Handed over in memory, and through a file."""
    model = load(tiny_model("qwen3") if name == TURBO else root / name)
    chunk = 512 if RECIPES.get(name) == 256 else 32
    prompt = 530 if chunk == 512 else PROMPT
    cold = Row(model, f"{kv}:on-write")
    whole = cold.run(*calls_to(0, prompt, chunk), *DECODED)
    every = planned_every(cold.plan, chunk)
    assert every == model.spec.publish_every(chunk) == (RECIPES.get(name, 1) or chunk)
    for boundary in (1, chunk + 1, 2 * chunk) if every == 1 else range(every, prompt, every):
        require_boundary(cold.plan, chunk, boundary)
        donor = Row(model, f"{kv}:on-write")
        donor.run(*calls_to(0, boundary, chunk))
        identity = Identity.of(model.sha256, "float32", donor.plan, chunk)
        write_caches(tmp_path / "prefix.kv", donor.caches, identity)
        warm, read = Row(model, f"{kv}:on-write"), Row(model, f"{kv}:on-write")
        for cache, theirs in zip(warm.caches, donor.caches, strict=True):
            cache.restore(theirs.snapshot())
        read.caches = read_caches(tmp_path / "prefix.kv", read.plan, identity)
        for hit in (warm, read):
            assert np.array_equal(hit.run(*calls_to(boundary, prompt, chunk), *DECODED), whole[boundary:]), boundary


@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss"])
def test_calls_that_begin_elsewhere_have_other_bits_in_a_ring(name: str, root: Path) -> None:
    """Single tokens are written over the oldest, so that its keys are summed in another order."""
    whole = Row(load(root / name), "kv8:g32:on-write").run(*calls_to(0, PROMPT, 32))
    moved = Row(load(root / name), "kv8:g32:on-write").run(*calls_to(0, 50, 32), *(1,) * (PROMPT - 50))
    assert not np.array_equal(moved, whole)


@pytest.mark.parametrize(
    ("kv", "caches", "chunk", "every"),
    [
        ("native", (DENSE, STATE), 32, 1),
        ("kv8:on-write", (DENSE,), 32, 1),
        ("turbo:k8v3:on-write", (DENSE,), 32, 1),
        ("kv8:on-write", (DENSE, SCAN), 512, 256),
        ("kv8:on-write", (DENSE, SCAN), 384, 384),
        ("kv8:on-write", (DENSE, RING), 32, 32),
        ("kv8:on-write:skip", (DENSE, LATENT), 32, 32),
        ("kv8", (DENSE,), 32, 32),
        ("kv8:start=100", (DENSE,), 32, 32),
    ],
)
def test_what_is_no_boundary_is_refused(kv: str, caches: tuple[CacheSpec, ...], chunk: int, every: int) -> None:
    plan = KVPlan.build(parse_kv(kv), caches)
    assert planned_every(plan, chunk) == every
    require_boundary(plan, chunk, 3 * every)
    for tokens in {0, -every, 3 * every + 1} - ({4} if every == 1 else set()):
        with pytest.raises(errors.InvalidValue, match=f"prefix={tokens}.*multiple of {every}"):
            require_boundary(plan, chunk, tokens)


def test_a_prefix_of_another_chunk_is_refused_where_it_has_other_bits(tmp_path: Path) -> None:
    for caches, refused in (((DENSE,), False), ((DENSE, RING), True)):
        plan = KVPlan.build(parse_kv("kv8:on-write"), caches)
        write_caches(tmp_path / "prefix.kv", plan.fresh(), Identity.of("abc", "float32", plan, 32))
        other = Identity.of("abc", "float32", plan, 64)
        if not refused:
            read_caches(tmp_path / "prefix.kv", plan, other)
            continue
        with pytest.raises(errors.InvalidValue, match="every"):
            read_caches(tmp_path / "prefix.kv", plan, other)
