"""What a running batch promises beside equal rows: isolation, memory, modes, and levers that keep bits."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import Engine, Request, SamplingParams, errors, load
from engine.config import EngineConfig
from engine.graph.oracle_batch import NoBatch
from engine.graph.params import Linear
from engine.sched.modes import modes_of, prompt_share, resolve_mode, shared_tokens
from oracles.tiny import tiny_model

BAD = 50
ZOO = Path(__file__).resolve().parents[1] / "zoo"


def ask(prompt: tuple[int, ...], tokens: int = 6, **sampling: Any) -> Request:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, **sampling)
    return Request(prompt=prompt, sampling=params, delivery="collect", taps=("logits",))


def test_a_row_of_nan_logits_ends_alone() -> None:
    """One embedding row of NaN, of a model whose head is its own: only a prompt with that token sees it."""
    with load(tiny_model("qwen3"), drive="manual") as engine:
        table = engine._model.decoder.stem.table
        head = engine._model.decoder.head
        assert isinstance(table.as_linear, Linear)
        head.linear = Linear(mx.array(table.as_linear.weight), None)
        good = [engine.submit(ask((5, 9, 2))).result(), engine.submit(ask((7, 7, 3, 8))).result()]
        table.as_linear.weight[BAD] = float("nan")
        rows = [engine.submit(ask((5, 9, 2))), engine.submit(ask((4, BAD, 6))), engine.submit(ask((7, 7, 3, 8)))]
        while engine.step():
            pass
        with pytest.raises(errors.BadLogits, match="token 0"):
            rows[1].result()
        for handle, alone in zip((rows[0], rows[2]), good, strict=True):
            assert np.array_equal(np.array(handle.result().taps["logits"]), np.array(alone.taps["logits"]))


def test_a_row_keeps_its_caches_when_others_join_and_leave(llama_folder: Path) -> None:
    with load(llama_folder, drive="manual") as engine:
        first = engine.submit(ask((5, 9, 2, 7), tokens=12))
        engine.step()
        row = engine._scheduler._active[first.id].row
        before = list(row.caches)  # type: ignore[union-attr]
        engine.submit(ask((8, 3), tokens=3))
        for _ in range(6):
            engine.step()
        assert all(a is b for a, b in zip(before, row.caches, strict=True))  # type: ignore[union-attr]
        assert len(first.result().tokens) == 12


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma2", marks=pytest.mark.matrix)])
def test_memory_returns_to_where_it_began(family: str) -> None:
    rng = random.Random(3)
    with load(tiny_model(family), drive="manual", prefill_chunk=16, batch=5) as engine:

        def run(count: int) -> int:
            handles = []
            for i in range(count):
                prompt = tuple(rng.randrange(2, 90) for _ in range(rng.choice((1, 5, 20, 60))))
                temperature = rng.choice((0.0, 1.0))
                handles.append(engine.submit(ask(prompt, tokens=rng.randint(1, 6), temperature=temperature, seed=i)))
                if rng.random() < 0.2:
                    handles[-1].cancel()
            while engine.step():
                pass
            while handles:
                handles.pop().result()
            gc.collect()
            mx.clear_cache()
            return mx.get_active_memory()

        for rows in range(1, 6):  # traces for each number of rows, level and ragged, are made once and keep constants
            for ragged in (0, 1):
                for seed in range(rows):
                    engine.submit(ask((5, 9, 2) * (1 + ragged * seed), tokens=12, temperature=0.0, seed=seed))
                while engine.step():
                    pass
        start = run(20)
        assert run(200) == start


@pytest.mark.parametrize("model", ["llama-3m", "gemma3-1m", "mamba2-1m"])
def test_a_row_that_leaves_mlx_lm_s_batch_frees_it_at_once(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted break: a row and the buffer of its batch kept each other alive until the next collection of cycles."""
    monkeypatch.setattr("engine.api.modes_of", lambda *_: ("composition", "batched"))
    with load(ZOO / model, dtype="float32", drive="manual", batch_mode="composition") as running:
        lay(running)
        gc.collect()
        gc.disable()
        try:
            held = []
            for _ in range(6):
                lay(running)
                mx.clear_cache()
                held.append(mx.get_active_memory())
        finally:
            gc.enable()
    assert max(held) - min(held) < 32 * 1024  # a step's own small arrays; one buffer of the batch holds more


def test_closing_lets_go_of_what_running_rows_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted break: their buffer stayed until the engine's own object went."""
    for rows in ("padded", "batched"):
        monkeypatch.setattr("engine.api.modes_of", lambda *_, rows=rows: ("composition", rows))
        running = load(ZOO / "llama-3m", dtype="float32", drive="manual")
        gc.collect()
        mx.clear_cache()
        before = mx.get_active_memory()
        handles = [running.submit(ask(tuple(range(9, 300)), tokens=20)) for _ in range(3)]
        for _ in range(6):
            running.step()
        assert mx.get_active_memory() > before + 2**20
        running.close()
        del handles
        gc.collect()
        mx.clear_cache()
        assert mx.get_active_memory() < before + 32 * 1024  # as above


def test_a_ring_in_mlx_lm_s_batch_keeps_no_prefixes() -> None:
    """Planted break: a prompt that came again failed with `BadPrefix`, since such a ring holds other tokens."""
    with load(ZOO / "gemma3-1m", dtype="float32", drive="manual") as running:
        spec, plan = running._model.spec, running._kv
    what: tuple[Any, ...] = ("gpu", "none", spec, plan, "gemma3_text", {})
    assert modes_of("auto", *what, True) == ("invariant", "one by one")
    assert modes_of("auto", *what, False) == ("composition", "alone or batched")
    with pytest.raises(errors.NotBuilt, match="ring"):
        modes_of("composition", *what, True)


@pytest.mark.parametrize("model", ["llama-3m", "gemma3-1m", "mamba2-1m"])
def test_a_lone_row_moves_into_mlx_lm_s_batch_when_another_comes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its prompt, behind it, and once more when all others have gone: every row has its own tokens."""
    asked = [
        ask(tuple(9 + (5 * i + b) % 300 for i in range(n)), tokens=6 + b) for b, n in enumerate((30, 9, 1, 16, 70))
    ]
    joins = (0, 2, 7, 30, 34)  # turns; by 30 the first three have ended
    with load(ZOO / model, dtype="float32", drive="manual", prefill_chunk=7) as solo:
        alone = [solo.submit(each).result().tokens for each in asked]
    monkeypatch.setattr("engine.api.modes_of", lambda *_: ("composition", "alone or batched"))
    with load(ZOO / model, dtype="float32", drive="manual", prefill_chunk=7) as running:
        handles = []
        for turn in range(80):
            handles += [running.submit(each) for each, join in zip(asked, joins, strict=True) if join == turn]
            running.step()
        assert [handle.result().tokens for handle in handles] == alone


def lay(running: Engine) -> None:
    """Four rows that end one after the other, one of them cancelled."""
    rows = [ask((5, 9, 2) * (1 + b), tokens=4 + 3 * b, temperature=0.0, seed=b) for b in range(4)]
    handles = [running.submit(row) for row in rows]
    turns = 0
    while running.step():
        turns += 1
        if turns == 6:
            handles[3].cancel()
    assert handles[3].result().finish_reason == "cancelled"
    mx.synchronize()


@pytest.mark.matrix
def test_memory_is_flat_over_five_thousand_steps() -> None:
    """What is held beside the caches is the same after 5,000 tokens: nothing waits unevaluated behind it."""
    with load(tiny_model("llama"), drive="manual") as engine:
        for prompt in ((5, 9, 2), (7, 3)):
            params = SamplingParams(max_tokens=5000, ignore_eos=True)
            engine.submit(Request(prompt=prompt, sampling=params, delivery="collect"))
        seen = []
        for step in range(5000):
            engine.step()
            if step % 1000 == 500:
                mx.clear_cache()
                slots = engine._scheduler.method.lanes._slots  # type: ignore[attr-defined]
                held = sum(array.nbytes for slot in slots for array in slot.arrays())
                seen.append(mx.get_active_memory() - held)
        assert max(seen) - min(seen) < 64 * 1024  # the tokens themselves, and what a step holds, which differs by turns


@pytest.mark.parametrize("quant", ["q4g32", "mixed"])
def test_fused_projections_keep_every_bit(quant: str) -> None:
    ids = [int(i) for i in np.random.Generator(np.random.PCG64(2)).integers(2, 90, 23)]
    folder = tiny_model("qwen3", quant=quant)
    with load(folder) as plain, load(folder, fuse="quantized") as fused:
        assert np.array_equal(np.array(plain.logits(ids, chunk=7)), np.array(fused.logits(ids, chunk=7)))
        one, other = (engine.generate(ids, SamplingParams(max_tokens=12)) for engine in (plain, fused))
        assert one.tokens == other.tokens
        assert (one.plan.fuse, other.plan.fuse) == ("none", "quantized")


def test_fusion_is_refused_where_nothing_can_be_joined(llama_folder: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="fuse"):
        load(llama_folder, fuse="quantized")


@pytest.mark.parametrize("kv", ["native", "kv8:g32", "kv4:g32:start=20", "kv8/4:g32:on-write"])
def test_the_projection_of_a_request_is_what_it_holds(kv: str) -> None:
    with load(tiny_model("qwen3"), kv=kv, prefill_chunk=7) as engine:
        for prompt, tokens in ((1, 1), (9, 3), (30, 260)):
            done = engine.submit(ask(tuple(range(2, 2 + prompt)), tokens=tokens)).result()
            # The last token's own forward is never run: its place is projected, and may open one more step of room.
            ahead = engine.project(prompt, tokens).kv_bytes
            held = engine.project(prompt, max(tokens - 1, 1)).kv_bytes if tokens > 1 else ahead
            assert done.plan.kv_bytes == ahead
            assert sum(layer.kv_bytes for layer in done.caches) in (ahead, held)


def test_requests_wait_for_room_in_a_budget_and_one_that_never_fits_is_refused(llama_folder: Path) -> None:
    with load(llama_folder) as engine:
        each = engine.project(4, 8).kv_bytes
    with load(llama_folder, drive="manual", kv_budget=2 * each) as engine:
        handles = [engine.submit(ask((5, 9, 2, 7), tokens=8)) for _ in range(3)]
        engine.step()
        assert [handle.state for handle in handles] == ["running", "running", "queued"]
        assert [len(handle.result().tokens) for handle in handles] == [8, 8, 8]
        with pytest.raises(errors.InvalidValue, match="budget"):
            engine.submit(ask((5, 9, 2, 7), tokens=2000))
    threads = threading.active_count()
    with pytest.raises(errors.InvalidValue, match="memory_budget"):
        load(llama_folder, memory_budget=1000)
    assert threading.active_count() == threads  # a load that fails leaves nothing running
    with load(llama_folder, memory_budget=2**30) as engine:
        assert len(engine.submit(ask((5, 9, 2, 7))).result().tokens) == 6


def test_an_allocation_that_fails_ends_its_rows_and_frees_them(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(llama_folder, drive="manual") as engine:
        method, step = engine._scheduler.method, engine._scheduler.method.step

        def full(rows: Any) -> Any:
            raise RuntimeError("[malloc] Unable to allocate 123 bytes.")

        handles = [engine.submit(ask((5, 9, 2, 7))) for _ in range(2)]
        engine.step()
        monkeypatch.setattr(method, "step", full)
        engine.step()
        monkeypatch.setattr(method, "step", step)
        for handle in handles:
            with pytest.raises(errors.OutOfMemory, match="123 bytes"):
                handle.result()
        assert not engine._scheduler._active
        assert len(engine.submit(ask((5, 9, 2, 7))).result().tokens) == 6


def test_modes() -> None:
    assert resolve_mode("auto", "cpu", "bundled", "", "all") == ("composition", "padded")
    assert resolve_mode("auto", "cpu", "openblas0.3.21-zen", "", "some") == ("composition", "padded")
    assert resolve_mode("auto", "cpu", "bundled", "", "none") == ("composition", "together")
    assert resolve_mode("composition", "cpu", "bundled", "", "all", "kv_budget") == ("composition", "together")
    assert resolve_mode("auto", "cpu", "bundled", "one position", "all") == ("composition", "one by one")
    assert resolve_mode("auto", "cpu", "bundled", "one array", "all", beside="") == ("composition", "padded")
    assert resolve_mode("auto", "cpu", "bundled", "one array", "all", "kv_budget", beside="")[1] == "one by one"
    assert resolve_mode("fast", "gpu", "none", "one array", "all", beside="") == ("fast", "padded")
    assert resolve_mode("invariant", "cpu", "bundled", "", "all") == ("invariant", "together")
    # Dense products there have other bits at other numbers of rows.
    assert resolve_mode("invariant", "cpu", "openblas0.3.21-zen", "", "all") == ("invariant", "one by one")
    assert resolve_mode("fast", "cpu", "openblas0.3.21-zen", "", "all") == ("fast", "padded")
    assert resolve_mode("fast", "gpu", "none", "", "some") == ("fast", "padded")
    assert resolve_mode("fast", "gpu", "none", "one position", "all") == ("fast", "one by one")
    with pytest.raises(errors.InvalidValue, match=r"memory_budget.*padding"):
        resolve_mode("fast", "gpu", "none", "", "all", "memory_budget")


def test_on_a_gpu_a_batch_has_the_oracle_s_bits_where_it_has_such_a_batch() -> None:
    """A lone row is mlx-lm's plain decoding unless its batch of one is asked for by name."""
    assert resolve_mode("auto", "gpu", "none", "", "all") == ("composition", "alone or batched")
    assert resolve_mode("composition", "gpu", "none", "", "some") == ("composition", "batched")
    assert resolve_mode("composition", "cpu", "openblas0.3.21-zen", "", "some") == ("composition", "batched")
    assert resolve_mode("invariant", "gpu", "none", "", "all") == ("invariant", "one by one")
    theirs, here = NoBatch("mlx-lm's batch takes no packed caches", theirs=True), NoBatch("plain", theirs=False)
    for without, budget, error, words in (
        (theirs, "", errors.InvalidValue, "auto, invariant or fast on gpu: mlx-lm's batch takes no packed caches"),
        (here, "", errors.NotBuilt, "batch_mode=composition on gpu .plain."),
        (None, "kv_budget", errors.InvalidValue, "while kv_budget is set"),
    ):
        assert resolve_mode("auto", "gpu", "none", "", "some", budget, without=without) == ("invariant", "one by one")
        with pytest.raises(error, match=words):
            resolve_mode("composition", "gpu", "none", "", "some", budget, without=without)


def test_prompts_share_a_forward_only_where_a_model_is_small() -> None:
    assert shared_tokens("bundled", 50_000, 64) == 64
    assert shared_tokens("bundled", 50_000, 2048) == 200
    assert shared_tokens("openblas", 700_000, 2048) == 714
    assert shared_tokens("openblas", 135_000_000, 2048) == 3
    assert prompt_share("composition", "cpu", "bundled", 50_000, 2048) == 200
    assert prompt_share("fast", "cpu", "openblas", 700_000, 2048) == 714
    # On a GPU prompts share a forward wherever rows lie in one buffer.
    assert prompt_share("fast", "cuda", "none", 8_000_000_000, 2048) > 10**9
    assert prompt_share("invariant", "cuda", "none", 8_000_000_000, 2048) == 0


def test_packed_products_take_the_rows_of_a_step_as_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    product = mx.quantized_matmul

    def watched(x: mx.array, *arrays: mx.array, **how: object) -> mx.array:
        seen.append(x.shape)
        return product(x, *arrays, **how)

    with load(tiny_model("llama", quant="q4g32"), drive="manual", batch_mode="fast") as engine:
        asked = [ask((5, 9, 2, 7)), ask((8,)), ask((3, 3, 3, 3, 3, 3, 3))]
        alone = [engine.submit(request).result() for request in asked]
        monkeypatch.setattr(mx, "quantized_matmul", watched)
        beside = [handle.result() for handle in [engine.submit(request) for request in asked]]
    assert [(g.tokens, g.logprobs) for g in beside] == [(g.tokens, g.logprobs) for g in alone]
    for got, one in zip(beside, alone, strict=True):
        assert np.array_equal(np.array(got.taps["logits"]), np.array(one.taps["logits"]))
    assert any(len(shape) == 2 and shape[0] == 3 for shape in seen)


def test_padded_rows_are_refused_a_budget_and_are_not_said_of_packed_caches(llama_folder: Path) -> None:
    for name in ("kv_budget", "memory_budget"):
        with pytest.raises(errors.InvalidValue, match="padding"):
            load(llama_folder, batch_mode="fast", **{name: 2**30})
    with load(llama_folder, drive="manual", batch_mode="fast", kv="kv8:g32") as engine:
        assert engine.submit(ask((5, 9))).result().plan.rows == "together"


@pytest.mark.parametrize("mode", ["composition", "invariant", "fast"])
def test_the_modes_are_one_on_the_cpu(llama_folder: Path, mode: str) -> None:
    with load(llama_folder, drive="manual", batch_mode=mode) as engine:
        asked = [ask((5, 9, 2, 7)), ask((8,)), ask((3, 3, 3, 3, 3, 3, 3))]
        alone = [engine.submit(request).result() for request in asked]
        handles = [engine.submit(request) for request in asked]
        for handle, one in zip(handles, alone, strict=True):
            got = handle.result()
            assert np.array_equal(np.array(got.taps["logits"]), np.array(one.taps["logits"]))
            assert (got.plan.batch_mode, got.plan.rows) == (mode, "together" if mode == "invariant" else "padded")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch", 0),
        ("batch", True),
        ("queue", 0),
        ("room", -1),
        ("idle_s", 0),
        ("batch_mode", "exact"),
        ("fuse", "all"),
    ],
)
def test_bad_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(errors.InvalidValue, match=field):
        EngineConfig.from_dict({"model": "x", field: value})


@pytest.mark.parametrize("kv", ["native", "kv8:g32", "kv4:g32:start=9"])
def test_scores_of_rows_are_those_of_teacher_forcing(llama_folder: Path, kv: str) -> None:
    rng = random.Random(2)
    sequences = [[rng.randrange(2, 101) for _ in range(length)] for length in (5, 23, 12, 9, 16)]
    with load(llama_folder, kv=kv, prefill_chunk=7) as engine:
        for batch in (1, 2, 4):
            for block, ids in zip(engine.score(sequences, tail=4, batch=batch), sequences, strict=True):
                want = engine.trace(ids, tail=4)
                assert mx.array_equal(block.logits, want.logits[-4:])
                assert block.kv_live == want.kv_live[-4:]
                assert block.positions == tuple(range(len(ids) - 4, len(ids)))
        assert next(engine.score([[5, 9]], tail=2)).logits.shape[0] == 2
        for options, word in (
            ({"tail": 6}, "tail"),
            ({"tail": 0}, "tail"),
            ({"batch": 9}, "batch"),
            ({"batch": 0}, "batch"),
        ):
            with pytest.raises(errors.InvalidValue, match=word):
                next(engine.score(sequences, **({"tail": 4} | options)))
