"""The prefix cache: a prompt that begins as another did has the bits of a run that found nothing, and what is kept is
bounded, shared, and let go."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import Engine, Generation, Rehearsal, Request, SamplingParams, errors, load
from engine.config import EngineConfig
from engine.store import prefix as store
from oracles.tiny import tiny_model

ZOO = Path(__file__).resolve().parents[1] / "zoo"
CHUNK, ROOM = 24, 1 << 26
LONG = tuple(random.Random(3).choices(range(20, 2000), k=130))
# What arrives one after the other, with how many tokens of it the ones before leave behind.
PROMPTS = (
    (LONG, 0),
    (LONG[:80] + (7,) * 41, 72),
    (LONG, 129),
    ((*LONG[:24], 9), 24),
    (LONG[:1], 0),
    (LONG[:24] + (8,) * 60, 24),
    (LONG[:110], 96),
)
MODELS = {
    "qwen3-1m": ("native", "kv8:g32", "kv4:g32:start=40", "kv8/4:g32:on-write"),  # every token
    "gemma3-1m": ("native", "kv8:g32", "kv4:g32:on-write"),  # rings of 64, which wrap, and every token
    "delta-1m": ("native", "kv8:g32:start=30"),  # states of a delta rule, convolutions, and every token
    "mamba2-1m": ("native",),  # states alone
    "mla-1m": ("native",),  # latents
}
QUICK = (("gemma3-1m", "kv8:g32"), ("delta-1m", "native"))
CELLS = [
    pytest.param(name, kv, marks=() if (name, kv) in QUICK else pytest.mark.matrix)
    for name, schemes in MODELS.items()
    for kv in schemes
]


def ask(prompt: tuple[int, ...], tokens: int = 5, **sampling: Any) -> Request:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, **sampling)
    return Request(prompt=prompt, sampling=params, delivery="collect", taps=("logits",))


def logits(done: Generation) -> np.ndarray:
    return np.array(done.taps["logits"])


@pytest.mark.parametrize(("name", "kv"), CELLS)
def test_what_goes_on_from_a_kept_prefix_has_the_bits_of_a_cold_run(name: str, kv: str) -> None:
    """Alone: bits, live caches and bytes. Then in a batch, where rows find what others left and leave at other turns.
    Fails for a ring restored without its place, for pieces joined across a conversion, for shared arrays."""
    how: dict[str, Any] = {"dtype": "float32", "kv": kv, "prefill_chunk": CHUNK, "drive": "manual"}
    with load(ZOO / name, **how) as engine:
        cold = [engine.submit(ask(prompt)).result() for prompt, _ in PROMPTS]
    with load(ZOO / name, prefix_cache=ROOM, **how) as engine:
        for (prompt, found), alone in zip(PROMPTS, cold, strict=True):
            done = engine.submit(ask(prompt)).result()
            assert done.usage.cached_tokens == found
            assert np.array_equal(logits(done), logits(alone))
            assert (done.caches, done.kv_live, done.kv_status) == (alone.caches, alone.kv_live, alone.kv_status)
            assert done.plan.kv_bytes == alone.plan.kv_bytes
        status = engine.prefix_status()
        assert status is not None
        assert (status.hits, status.cached_tokens) == (5, sum(found for _, found in PROMPTS))
        assert not status.not_kept
    with load(ZOO / name, prefix_cache=ROOM, batch=4, **how) as engine:
        handles = []
        for prompt, _ in PROMPTS:
            handles.append(engine.submit(ask(prompt)))
            engine.step()
        rows = [handle.result() for handle in handles]
        assert sum(row.usage.cached_tokens > 0 for row in rows) >= 3
        for row, alone in zip(rows, cold, strict=True):
            assert np.array_equal(logits(row), logits(alone))


def test_penalties_see_the_cached_prompt() -> None:
    """Fails if a resumed row's history begins behind what it found."""
    how: dict[str, Any] = {"prefill_chunk": 8, "drive": "manual"}
    asked = ask(tuple(range(5, 45)), 12, repetition_penalty=1.7, repetition_context_size=60, temperature=0.8, seed=4)
    with load(tiny_model("llama"), **how) as engine:
        cold = engine.submit(asked).result()
    with load(tiny_model("llama"), prefix_cache=ROOM, **how) as engine:
        first, again = (engine.submit(asked).result() for _ in range(2))
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 39)
    assert first.tokens == again.tokens == cold.tokens


def test_prompts_that_begin_alike_share_bytes_and_the_oldest_go() -> None:
    """Fails if a boundary holds what is before it, slack, or more than its room; if what others go on from goes."""
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual", prefix_cache=ROOM) as engine:
        each = engine.project(9, 1).kv_bytes // 256  # of a token; a buffer has room for 256
        trunk = tuple(range(5, 45))
        engine.submit(ask((*trunk, 50))).result()
        held = [status.held_bytes for status in (engine.prefix_status(),) if status]
        engine.submit(ask((*trunk, *range(60, 68), 50))).result()
        status = engine.prefix_status()
        assert status is not None
        assert (held, status.held_bytes, status.boundaries) == ([40 * each], 48 * each, 6)
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual", prefix_cache=56 * each) as engine:
        for tail in (60, 70, 80, 90):  # the third and fourth need the room of one that was not used since
            found = engine.submit(ask((*trunk, *range(tail, tail + 8), 50))).result().usage.cached_tokens
            assert found == (0 if tail == 60 else 40)
            status = engine.prefix_status()
            assert status is not None
            assert status.held_bytes <= 56 * each
        assert status.evicted == 2
        assert engine.submit(ask((*trunk, *range(90, 98), 50))).result().usage.cached_tokens == 48
        assert engine.submit(ask((*trunk, *range(60, 68), 50))).result().usage.cached_tokens == 40
        engine.submit(ask(tuple(range(90, 5, -1)))).result()
        status = engine.prefix_status()
        assert status is not None
        assert status.not_kept == {store.TOO_LARGE: 4}  # 84 tokens, room for 56
        assert status.boundaries == 7


def test_a_row_that_ends_before_its_prompt_is_in_leaves_nothing() -> None:
    """Cancelled, and failed. Fails if its boundaries stay, or if those that it found go with it."""
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual", prefix_cache=ROOM) as engine:
        engine.submit(ask((*range(5, 21), 3))).result()
        before = engine.prefix_status()
        for end in ("cancel", "break"):
            handle = engine.submit(ask((*range(5, 21), *range(30, 70))))
            engine.step()
            engine.step()
            during = engine.prefix_status()
            assert before is not None
            assert during is not None
            assert during.boundaries == before.boundaries + 2
            if end == "cancel":
                handle.cancel()
                assert handle.result().finish_reason == "cancelled"
            else:
                method = engine._scheduler.method
                whole, method.prefill = method.prefill, _fails  # type: ignore[method-assign]
                with pytest.raises(ZeroDivisionError):
                    handle.result()
                method.prefill = whole  # type: ignore[method-assign]
            after = engine.prefix_status()
            assert after is not None
            assert (after.boundaries, after.held_bytes) == (before.boundaries, before.held_bytes)


def _fails(rows: object) -> None:
    raise ZeroDivisionError


def test_what_cannot_be_restored_is_a_typed_error_and_is_computed_next_time() -> None:
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual", prefix_cache=ROOM) as engine:
        good = engine.submit(ask(tuple(range(5, 30)))).result()
        assert engine._prefixes is not None
        node = engine._prefixes._root.children[tuple(range(5, 13))]
        node.pieces = (*node.pieces[:-1], store.Piece(node.pieces[-1].saved, 3))
        with pytest.raises(errors.BadPrefix, match="kept prefix of 24 tokens"):
            engine.submit(ask(tuple(range(5, 30)))).result()
        again = [engine.submit(ask(tuple(range(5, 30)))).result() for _ in range(2)]
        assert [row.usage.cached_tokens for row in again] == [0, 24]
        assert all(np.array_equal(logits(row), logits(good)) for row in again)


def test_its_bytes_are_part_of_the_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if admission forgets them."""
    monkeypatch.setattr(Engine, "rehearse", lambda *_: Rehearsal(10_000_000, 0))  # which follows what else is held
    folder, budget = tiny_model("llama"), 40_000_000
    limits = []
    for kept in (0, 5_000_000):
        with load(folder, prefill_chunk=8, drive="manual", memory_budget=budget, prefix_cache=kept) as engine:
            limits.append(engine._scheduler.limits.kv_bytes)
    assert limits[0] is not None
    assert limits[1] == limits[0] - 5_000_000
    with pytest.raises(errors.InvalidValue, match=r"memory_budget.*prefix_cache"):
        load(folder, prefill_chunk=8, drive="manual", memory_budget=budget, prefix_cache=budget)


@pytest.mark.parametrize("value", [-1, 1.5, True, "1GB"])
def test_what_is_no_number_of_bytes_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidValue, match="prefix_cache"):
        EngineConfig(model="x", prefix_cache=value)  # type: ignore[arg-type]


def test_a_turn_says_how_many_tokens_were_found() -> None:
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual", prefix_cache=ROOM) as engine:
        found: list[int] = []
        engine.trace_turns(lambda log: found.append(log.cached_tokens))
        for _ in range(2):
            engine.submit(ask(tuple(range(5, 30)), 2)).result()
    assert [tokens for tokens in found if tokens] == [24]


def test_an_engine_without_one_keeps_nothing() -> None:
    with load(tiny_model("llama"), prefill_chunk=8, drive="manual") as engine:
        for _ in range(2):
            assert engine.submit(ask(tuple(range(5, 30)), 2)).result().usage.cached_tokens == 0
        assert engine.prefix_status() is None


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(3))
def test_arrivals_at_random_get_what_they_would_alone(seed: int) -> None:
    """Common beginnings, too little room, cancels, rows that come and go at other turns. Fails if what is counted is
    not what is held, if an end of a prompt is taken for a chunk's, and if a row writes into what is kept."""
    rng = random.Random(seed)
    how: dict[str, Any] = {"prefill_chunk": 8, "drive": "manual", "kv": rng.choice(("native", "kv8:g32:start=20"))}
    trunks = [tuple(rng.choices(range(2, 100), k=60)) for _ in range(3)]
    prompts = [rng.choice(trunks)[: rng.randint(1, 60)] + (rng.randint(2, 99),) * rng.randint(0, 5) for _ in range(40)]
    prompts = [prompt or (5,) for prompt in prompts]
    with (
        load(tiny_model("llama"), prefix_cache=120_000, batch=4, **how) as engine,
        load(tiny_model("llama"), **how) as cold,
    ):
        handles = []
        for prompt in prompts:
            handles.append(engine.submit(ask(prompt, rng.randint(1, 6))))
            for _ in range(rng.randint(0, 3)):
                engine.step()
            if rng.random() < 0.2:
                rng.choice(handles).cancel()
        rows = [handle.result() for handle in handles]
        for prompt, row in zip(prompts, rows, strict=True):
            if row.tokens:
                alone = cold.submit(ask(prompt, len(row.tokens))).result()
                assert np.array_equal(logits(row), logits(alone))
        assert sum(row.usage.cached_tokens for row in rows) > 200
        kept, going = engine._prefixes, list[store.Node]()
        assert kept is not None
        going += kept._root.children.values()
        total = count = 0
        while going:
            node = going.pop()
            going += node.children.values()
            total, count = total + node.nbytes, count + 1
        status = kept.status()
        assert (status.held_bytes, status.boundaries) == (total, count)
        assert total <= 120_000
        assert status.evicted > 0


def test_what_is_forgotten_is_freed_at_once() -> None:
    """Without the collector of cycles. Fails if nodes that were let go still hold their arrays."""
    gc.collect()
    gc.disable()
    try:
        with load(ZOO / "qwen3-1m", dtype="float32", prefill_chunk=CHUNK, drive="manual", prefix_cache=ROOM) as engine:
            before = mx.get_active_memory()
            engine.submit(ask(LONG, tokens=1)).result()
            held = engine.prefix_status()
            assert held is not None
            assert mx.get_active_memory() - before >= held.held_bytes > 100_000
            engine.forget_prefixes()
            assert mx.get_active_memory() - before < held.held_bytes // 10
    finally:
        gc.enable()
