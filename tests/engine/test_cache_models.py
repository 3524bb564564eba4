"""Snapshots and drafts on whole models: prefixes may be published where the spec says so, drafts leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from built_models import build, load

from engine import parse_kv
from engine.graph.model import Model
from engine.kv.base import LayerCache
from engine.kv.draft import Draft
from engine.kv.plan import KVPlan

# Of each kind of cache: every token, a ring, a chunk, a latent, states of each recurrence, beside attention or alone.
RECIPES = {
    "qwen3": 1,
    "internlm3": None,  # a rope that turns by the length so far
    "phi3small": None,  # several tokens at once see more than one alone
    "gemma3_text": None,
    "llama4": None,
    "deepseek_v3": None,
    "qwen3_next": 1,
    "mamba2": 256,
    "falcon_h1": 256,
    "rwkv7": 1,
    "lfm2": 1,
    "recurrent_gemma": None,
}
every_model = pytest.mark.parametrize("name", list(RECIPES))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield build(RECIPES, tmp_path_factory.mktemp("models"))
    load.cache_clear()


class Row:
    """A model's caches, and the logits of what runs over them."""

    def __init__(self, model: Model, caches: list[LayerCache] | None = None) -> None:
        self.model = model
        self.caches = caches or KVPlan.build(parse_kv("native"), model.spec.caches).fresh()
        self.ids = np.random.default_rng(7).integers(2, model.spec.vocab, 700)

    def at(self) -> int:
        return max(c.offset for c in self.caches)

    def run(self, *calls: int) -> np.ndarray:
        """The next tokens, in calls of so many: their logits [L, V]."""
        parts = []
        for tokens in calls:
            ids = mx.array(self.ids[self.at() : self.at() + tokens])[None]
            logits = self.model.decoder.project(self.model.decoder.forward_hidden(ids, self.caches))
            mx.eval(logits, [c.arrays() for c in self.caches])
            parts.append(np.array(logits[0]))
        return np.concatenate(parts)

    def from_snapshot(self) -> Row:
        """Other caches that hold the same."""
        twin = Row(self.model)
        for cache, mine in zip(twin.caches, self.caches, strict=True):
            cache.restore(mine.snapshot())
        return twin

    def held(self) -> list[object]:
        return [(c.held()[0], [None if a is None else np.array(a).tolist() for a in c.held()[1]]) for c in self.caches]


def calls_to(start: int, end: int, chunk: int) -> list[int]:
    return [min(chunk, end - at) for at in range(start, end, chunk)]


@every_model
def test_whoever_goes_on_from_a_published_prefix_computes_what_an_unbroken_run_does(name: str, root: Path) -> None:
    model = load(root / name)
    chunk = 512 if RECIPES[name] == 256 else 32
    prompt, decoded = 70 if chunk == 32 else 530, (1, 1)
    every = model.spec.publish_every(chunk)
    assert every == (RECIPES[name] or chunk)
    whole = Row(model).run(*calls_to(0, prompt, chunk), *decoded)
    boundaries = [1, chunk + 1, 2 * chunk] if every == 1 else range(every, prompt, every)
    for boundary in boundaries:
        row = Row(model)
        row.run(*calls_to(0, boundary, chunk))
        rest = row.from_snapshot().run(*calls_to(boundary, prompt, chunk), *decoded)
        assert np.array_equal(rest, whole[boundary:]), boundary


@pytest.mark.parametrize("name", [name for name, block in RECIPES.items() if block == 1])
def test_where_calls_begin_is_not_in_the_bits(name: str, root: Path) -> None:
    model = load(root / name)
    whole = Row(model).run(40)
    for calls in ((32, 8), (1,) * 40, (3, 1, 30, 1, 5)):
        assert np.array_equal(Row(model).run(*calls), whole), calls


@every_model
def test_a_draft_leaves_what_was_kept_and_nothing_else(name: str, root: Path) -> None:
    row = Row(load(root / name))
    row.run(20, 1)
    never = row.from_snapshot()
    begun = row.held()
    for kept in (0, 2, 5):
        draft = Draft.begin(row.caches)
        drafted = row.run(5)
        draft.commit(kept, row.run)
        assert row.at() == 21 + kept
        after, twin = row.from_snapshot(), never.from_snapshot()
        alone = twin.run(*((kept,) if kept else ()), 3, 1)
        assert np.array_equal(after.run(3, 1), alone[kept:])
        if kept == 5:
            assert np.array_equal(drafted, alone[:5])
        if RECIPES[name] == 1 and kept:
            assert np.array_equal(never.from_snapshot().run(*(1,) * kept, 3, 1), alone)
        for cache, mine in zip(row.caches, never.caches, strict=True):
            cache.restore(mine.snapshot())
    draft = Draft.begin(row.caches)
    row.run(5)
    draft.rollback()
    assert row.held() == begun
    assert np.array_equal(row.run(3, 1), never.run(3, 1))


@every_model
def test_a_run_that_fails_leaves_every_layer_as_it_was(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(load(root / name))
    row.run(20, 1)
    begun = row.held()
    draft = Draft.begin(row.caches)
    row.run(5)

    def fail(*_: object) -> None:
        raise RuntimeError("in the last layer")

    monkeypatch.setattr(row.caches[-1], "append", fail)
    with pytest.raises(RuntimeError, match="last layer"):
        draft.commit(3, row.run)
    monkeypatch.undo()
    assert row.held() == begun
