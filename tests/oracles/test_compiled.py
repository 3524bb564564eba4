"""The compiled decode step: each row has the bits of the step that is not compiled.

Over the fixed buffers and their masks run models of each kind, and every architecture in `make test-nightly`; fused
kernels are built for a few, since the compiler takes up to half a minute a model.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import engine.api
import engine.graph.order
from engine import Generation, Request, SamplingParams, errors, load, machine
from engine.graph.compiled import CompiledStep, unfit_for_compile
from engine.graph.rows import unfit_for_rows
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe, recipes
from oracles.tiny import tiny_model

LENGTHS = (1, 5, 12, 23)  # one token, below and above the windows (8) and chunks (7) of the tiny models
QUICK = ("llama", "gpt_oss")
FUSED = ("gemma3_text", "qwen3_next", "mamba2", "qwen3_moe", "gemma3n", "rwkv7", "kimi_linear", "lfm2")
# One of each kind of cache and mixer.
KINDS = (
    *("gemma3_text", "gemma3n", "cohere2", "exaone4", "qwen3_next", "kimi_linear", "mamba2", "rwkv7", "lfm2"),
    *("recurrent_gemma", "falcon_h1", "bailing_moe_linear", "deepseek_v3", "llama4", "nemotron-nas"),
)
REFUSED = ("bitnet", "muse_spark", "olmo")  # engine/graph/families/refused.py
ALL = sorted(name for name in recipes() if name not in REFUSED)

PROVED = (machine().device, machine().arch) == ("cpu", "x86_64")


def refused_here(folder: Path) -> bool:
    """Whether this machine is one without a proof; then the lever must be refused."""
    if not PROVED:
        with pytest.raises(errors.InvalidValue, match="measured equal on an x86_64 CPU"):
            load(folder, compile="step")
    return not PROVED


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace is made at the first step of a geometry."""
    patched(monkeypatch, patience=0)


def patched(monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
    monkeypatch.setattr(engine.api, "CompiledStep", partial(CompiledStep, **how))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


@pytest.fixture
def unfused() -> Iterator[None]:
    mx.disable_compile()
    yield
    mx.enable_compile()


def ran(folder: Path, lengths: Sequence[int], tokens: int, **config: Any) -> tuple[list[Generation], Any]:
    """Each row alone, then all beside each other, and the counts."""
    draws = random.Random(7)
    with load(folder, prefill_chunk=7, drive="manual", **config) as loaded:
        vocab = int(loaded.logits([2, 3]).shape[-1])
        asked = [
            Request(
                prompt=tuple(draws.randrange(2, vocab) for _ in range(length)),
                sampling=SamplingParams(max_tokens=tokens, ignore_eos=True),
                taps=("logits",),
                delivery="collect",
            )
            for length in lengths
        ]
        alone = [loaded.submit(request).result() for request in asked]
        handles = [loaded.submit(request) for request in asked]
        return [*alone, *(handle.result() for handle in handles)], loaded.compiled


def equal(left: Sequence[Generation], right: Sequence[Generation]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.tokens == other.tokens
        assert mx.array_equal(one.taps["logits"], other.taps["logits"])
        # Beside each other the rows of the plain step lie in one buffer, whose slack is nobody's.
        assert [replace(c, kv_bytes=0) for c in one.caches] == [replace(c, kv_bytes=0) for c in other.caches]


def compiled_equals_plain(folder: Path) -> None:
    if refused_here(folder):
        return
    with load(folder) as loaded:
        unfit = unfit_for_rows(loaded._model.spec, one_buffer=True)
        fixed = all(cache.kind != "chunked" and not cache.grows for cache in loaded._model.spec.caches)
    if unfit or not fixed:
        with pytest.raises(errors.InvalidValue, match=re.escape(unfit) or "fixed place"):
            load(folder, compile="step")
        return
    compiled, counts = ran(folder, LENGTHS, 6, compile="step")
    plain, none = ran(folder, LENGTHS, 6, compile="none")
    equal(compiled, plain)
    assert none is None
    assert counts.steps >= 4 * 5 + 5
    assert counts.plain == 0


@pytest.mark.parametrize("name", QUICK)
def test_a_compiled_step_has_the_same_bits(worker: Worker, name: str) -> None:
    compiled_equals_plain(worker.make(find_recipe(name), Form()))


@pytest.mark.nightly
@pytest.mark.parametrize("name", FUSED)
def test_a_compiled_step_has_the_same_bits_in_more_modules(worker: Worker, name: str) -> None:
    compiled_equals_plain(worker.make(find_recipe(name), Form()))


@pytest.mark.matrix
@pytest.mark.parametrize("name", KINDS)
def test_fixed_buffers_keep_the_bits(worker: Worker, unfused: None, name: str) -> None:
    compiled_equals_plain(worker.make(find_recipe(name), Form()))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL)
def test_fixed_buffers_keep_the_bits_in_every_module(worker: Worker, unfused: None, name: str) -> None:
    compiled_equals_plain(worker.make(find_recipe(name), Form()))


@pytest.mark.parametrize("kv", ["kv8:g32", "kv4:g32:start=9", "kv8/4:g32:on-write"])
def test_packed_caches_keep_their_bits(kv: str) -> None:
    packed_equals_plain(kv, "float32")


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_keeps_its_bits(dtype: str) -> None:
    packed_equals_plain("kv8:g32", dtype)


def packed_equals_plain(kv: str, dtype: str) -> None:
    folder = tiny_model("llama")
    if refused_here(folder):
        return
    compiled, counts = ran(folder, (5, 12), 8, compile="step", kv=kv, dtype=dtype)
    plain, _ = ran(folder, (5, 12), 8, compile="none", kv=kv, dtype=dtype)
    equal(compiled, plain)
    assert counts.plain == 0


def test_a_buffer_that_grows_is_another_geometry() -> None:
    folder = tiny_model("llama")
    if refused_here(folder):
        return
    compiled, counts = ran(folder, (250,), 12, compile="step")
    plain, _ = ran(folder, (250,), 12, compile="none")
    equal(compiled, plain)
    assert counts.geometries == 2


def test_a_trace_that_served_longest_ago_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, patience=0, bound=1)
    folder = tiny_model("llama")
    if refused_here(folder):
        return
    compiled, counts = ran(folder, (250, 3), 12, compile="step")
    plain, _ = ran(folder, (250, 3), 12, compile="none")
    equal(compiled, plain)
    assert counts.geometries == 5  # 250 keys and more, and more than a buffer has room for; 3; both; and both grown
    assert counts.plain == 0


def test_a_shape_that_does_not_come_again_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, patience=3)
    folder = tiny_model("llama")
    if refused_here(folder):
        return
    compiled, counts = ran(folder, (5,), 4, compile="step")  # three steps alone, and three more of the same shapes
    plain, _ = ran(folder, (5,), 4, compile="none")
    equal(compiled, plain)
    assert (counts.geometries, counts.plain, counts.steps) == (1, 3, 3)


def test_sums_that_are_cut_in_parts_run_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a BLAS that cuts a sum of more than 16 keys in two."""
    whole = engine.graph.order.attend

    def cut(queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None = None) -> Any:
        out = whole(queries, keys, values, scale, mask)
        return out * (1 + 1e-6 * max(keys.shape[2] - 16, 0))

    monkeypatch.setattr(engine.graph.order, "attend", cut)
    monkeypatch.setattr(
        engine.api, "CompiledStep", lambda decoder, tried: CompiledStep(decoder, tried=True, patience=0)
    )
    folder = tiny_model("llama")
    if refused_here(folder):
        return
    compiled, counts = ran(folder, (5,), 4, compile="step")
    plain, _ = ran(folder, (5,), 4, compile="none")
    equal(compiled, plain)
    assert counts.steps == counts.geometries == 0
    assert counts.unordered == counts.plain == 6


def test_the_order_of_sums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = engine.graph.order.Heads(queries=4, keys=2, dim=16, v_dim=16)
    assert engine.graph.order.in_order(heads, mx.float32, range(1, 65), 64) or machine().blas != "bundled"
    whole, asked = engine.graph.order.attend, []

    def cut(queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None = None) -> Any:
        asked.append(keys.shape[2])
        if mask is None and keys.shape[2] == 40:  # in two parts, added up at the end
            scores = mx.softmax(scale * queries @ mx.repeat(keys, 2, axis=1).swapaxes(-1, -2), axis=-1)
            several = mx.repeat(values, 2, axis=1)
            return scores[..., :24] @ several[:, :, :24] + scores[..., 24:] @ several[:, :, 24:]
        return whole(queries, keys, values, scale, mask)

    monkeypatch.setattr(engine.graph.order, "attend", cut)
    assert not engine.graph.order.in_order(heads, mx.float32, range(33, 65), 64)
    assert asked[-2:] == [40, 64]


def test_a_default_gives_way_where_a_plan_cannot_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.api, "machine_defaults", lambda key: {"compile": "step"})
    if refused_here(tiny_model("llama")):
        return
    with load(tiny_model("llama")) as fit, load(tiny_model("llama"), kv="turbo:k8v3") as unfit:
        assert (fit.config.compile, unfit.config.compile) == ("step", "none")
        request = Request(prompt=(3, 4), sampling=SamplingParams(max_tokens=2, ignore_eos=True), delivery="collect")
        assert unfit.submit(request).result().plan.compile == "none"
    with pytest.raises(errors.InvalidValue, match="unpack"):
        load(tiny_model("llama"), kv="turbo:k8v3", compile="step")


def test_what_has_no_proof_is_refused_at_load() -> None:
    if refused_here(tiny_model("llama")):
        return
    with pytest.raises(errors.InvalidValue, match="unpack"):
        load(tiny_model("llama"), compile="step", kv="turbo:k8v3")
    with load(tiny_model("llama"), drive="manual") as loaded:
        where = (loaded._model.decoder, loaded._kv)
        assert not unfit_for_compile(*where, "cpu", "x86_64")
        for machine_parts in (("cuda", "x86_64"), ("cpu", "aarch64")):
            assert "measured equal on an x86_64 CPU" in unfit_for_compile(*where, *machine_parts)
