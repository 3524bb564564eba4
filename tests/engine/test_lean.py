"""Rotations and norms in fewer operations: the bits of MLX's own, and really fewer."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import Request, SamplingParams, errors, load
from engine.graph import norms
from engine.graph.attention import Attention
from engine.graph.experts import Moe
from engine.graph.layers import Layer
from engine.graph.lean import (
    OffsetArrays,
    Tables,
    _traced,
    adds_products,
    divisible,
    divisible_on_gpu,
    lean,
    unfit_for_lean,
)
from engine.graph.mixtures import BlendedMoe
from engine.graph.mlp import Mlp
from engine.graph.rope import build_rope
from engine.graph.spec import AttentionSpec, LayerSpec, Norms, NormSpec, QueryScale, RopeSpec
from engine.levers import lever
from oracles.tiny import tiny_model

DTYPES = (mx.float32, mx.bfloat16, mx.float16)
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
SPECS = (
    RopeSpec(dims=32, base=10000.0),
    RopeSpec(dims=32, base=1e6, traditional=True),
    RopeSpec(dims=16, base=10000.0),
    RopeSpec(dims=16, base=10000.0, traditional=True),
    RopeSpec(dims=32, base=10000.0, scaling={"type": "linear", "factor": 3.0}),
    RopeSpec(dims=32, base=10000.0, scaling=YARN),
    RopeSpec(dims=32, base=10000.0, scaling={"type": "dynamic", "factor": 2.0}, max_positions=8),
    RopeSpec(dims=32, base=10000.0, scaling={"type": "proportional", "partial_rotary_factor": 0.5}),
)


def drawn(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def same(left: mx.array, right: mx.array) -> bool:
    assert left.dtype == right.dtype
    return bool(mx.array_equal(left, right).item())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.kind}-{spec.dims}-{spec.traditional}")
def test_tables_turn_as_mlx_does(spec: RopeSpec, dtype: mx.Dtype) -> None:
    rope, tables = build_rope(spec), Tables()
    rows = mx.array([0, 5, 3071], mx.int32)
    for seed, offset in enumerate((0, 1, 7, 7, 4095, 70001, rows, rows, mx.array([2, 2, 1], mx.int32))):
        if isinstance(offset, mx.array) and spec.kind == "dynamic":
            continue  # takes no rows
        x = drawn((3 if isinstance(offset, mx.array) else 1, 4, 1, 32), dtype, seed)
        assert same(tables.turned(rope, x, offset), rope.turn(x, offset)), (seed, offset)


def test_tables_of_one_offset_are_made_once_and_shared() -> None:
    ropes, tables = [build_rope(SPECS[0]) for _ in range(3)], Tables()
    x, made = drawn((1, 4, 1, 32), mx.float32), []
    for rope in ropes:
        real = rope.turn
        rope.turn = lambda *given, real=real: made.append(1) or real(*given)  # type: ignore[method-assign,misc]
        tables.turned(rope, x, 9)
    assert len(made) == 1
    tables.turned(ropes[0], x, 10)
    assert len(made) == 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("compute", "count"),
    [
        (norms._rms(1e-6), 1),
        (norms._rms(1e-5), 0),
        (norms._rms_cast(1e-6), 1),
        (norms._rms_shifted(1e-6, 1.0), 1),
        (norms._layer(1e-5), 2),
        (norms._layer(1e-5), 1),
        (norms._layer(1e-5), 0),
    ],
)
def test_a_traced_norm_has_the_same_bits(compute: Callable[..., mx.array], count: int, dtype: mx.Dtype) -> None:
    for seed, (shape, kept) in enumerate((((1, 1, 64), dtype), ((3, 1, 64), mx.float32), ((2, 1, 4, 64), dtype))):
        x = drawn(shape, dtype, seed) * 10.0 ** (seed - 1)
        arrays = [drawn((64,), kept, 9 + i) for i in range(count)]
        assert same(_traced(compute)(x, *arrays), compute(x, *arrays)), shape


def test_one_token_takes_fewer_operations_and_a_prompt_as_many(tmp_path: Path) -> None:
    def operations(engine: Any, ids: list[int]) -> int:
        caches = engine._kv.fresh()
        engine._model.decoder.forward_hidden(mx.array([[5, 9]]), caches)
        mx.eval([a for cache in caches for a in cache.arrays()])
        mx.export_to_dot(str(tmp_path / "g.dot"), engine._model.decoder.forward_hidden(mx.array([ids]), caches))
        return len(re.findall(r"shape=rectangle", (tmp_path / "g.dot").read_text(encoding="utf-8")))

    with (
        load(tiny_model("llama"), drive="manual", ops="mlx") as plain,
        load(tiny_model("llama"), drive="manual") as few,
    ):
        assert few.config.ops == "lean"
        assert operations(few, [7]) < 0.8 * operations(plain, [7])
        assert operations(few, [7, 3]) == operations(plain, [7, 3])
        params = SamplingParams(max_tokens=8, top_logprobs=1)
        left, right = (engine.generate([5, 9, 2, 7], params) for engine in (plain, few))
        assert (left.plan.ops, right.plan.ops) == ("mlx", "lean")
        assert (left.tokens, left.logprobs) == (right.tokens, right.logprobs)
        assert plain.live_levers()["ops"] == "mlx"
        assert few.live_levers()["ops"].startswith("lean (")


def test_other_machines_keep_mlx_s_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unfit_for_lean("cpu", "x86_64") == unfit_for_lean("cuda", "x86_64") == ""
    assert "aarch64" in unfit_for_lean("cpu", "aarch64")
    assert "metal" in unfit_for_lean("metal", "arm64")
    assert lever("ops").default_on("linux-x86_64-cpu-bundled") == "lean"
    assert lever("ops").default_on("linux-x86_64-cuda-sm90") == "mlx"  # equal, and not shown to be faster
    monkeypatch.setattr("engine.api.unfit_for_lean", lambda *_: "this is a metal")
    with pytest.raises(errors.InvalidValue, match="metal"):
        load(tiny_model("llama"), ops="lean")


# Norms before and behind both mixers, biases, an own rope scaling, a soft cap, packed weights.
HALVED = ("llama", "qwen2", "qwen3", "gemma2", "olmo2", "glm4", "llama-rope-llama3", "llama-bias")


def answers(folder: Path, dtype: str, **config: Any) -> list[tuple[Any, ...]]:
    """Tokens and log-probabilities of rows alone and beside each other."""
    params = SamplingParams(max_tokens=6, top_logprobs=3, ignore_eos=True)
    prompts = ([5, 9, 2, 7], [3], [8, 4, 6])
    with load(folder, dtype=dtype, drive="manual", **config) as loaded:
        alone = [loaded.generate(prompt, params) for prompt in prompts]
        handles = [loaded.submit(Request(prompt=prompt, sampling=params)) for prompt in prompts]
        return [(g.tokens, g.logprobs) for g in (*alone, *(handle.result() for handle in handles))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", HALVED)
def test_layers_in_halves_keep_the_bits(name: str, dtype: str) -> None:
    folder = tiny_model(name)
    with load(folder) as loaded:
        layers = loaded._model.decoder.layers
        assert all(layer.halves is not None for layer in layers)
    assert answers(folder, dtype, ops="lean") == answers(folder, dtype, ops="mlx")


@pytest.mark.parametrize("kv", ["kv8:g64", "kv4:g32:on-write"])
def test_halves_leave_the_cache_to_its_scheme(kv: str) -> None:
    folder = tiny_model("llama")
    assert answers(folder, "float32", kv=kv, ops="lean") == answers(folder, "float32", kv=kv, ops="mlx")


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines take the traces of a GPU."""
    monkeypatch.setattr("engine.api.lean", lambda decoder, _device: lean(decoder, "cuda"))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", HALVED)
def test_halves_that_take_offsets_keep_the_bits(name: str, dtype: str) -> None:
    """A step turns by an array, rows of unequal length by one of theirs; rotations and norms are left as they are."""
    folder = tiny_model(name)
    with load(folder, ops="lean") as loaded:
        layers = loaded._model.decoder.layers
        assert all(layer.halves is not None for layer in layers)
        assert loaded.live_levers()["ops"] == f"lean ({len(layers)} modules)"
    assert answers(folder, dtype, ops="lean") == answers(folder, dtype, ops="mlx")


def test_offsets_are_made_once_a_step() -> None:
    offsets, rows = OffsetArrays(), mx.array([4, 9], mx.int32)
    first = offsets.array(7)
    assert (first.item(), first.shape, first.dtype) == (7, (), mx.int32)
    assert offsets.array(7) is first
    assert offsets.array(rows) is rows
    assert offsets.array(8).item() == 8


def made_layer(mlp: object, rope: RopeSpec | None = None, layer: LayerSpec | None = None, **spec: Any) -> Layer:
    made = Layer.__new__(Layer)
    made.attention, made.mlp = Attention.__new__(Attention), mlp
    made.attention.spec = AttentionSpec(heads=2, kv_heads=1, head_dim=8, scale=1.0, rope=rope, **spec)
    made.attention.rope = build_rope(rope) if rope else None
    made.spec = layer or LayerSpec(attention=made.attention.spec, mlp=None, norms=Norms())
    return made


def test_a_gpu_divides_no_layer_that_adds_a_product() -> None:
    def moe(**fields: Any) -> Moe:
        made = Moe.__new__(Moe)
        made.shared_gate, made.spec = fields.get("gate"), SimpleNamespace(scale=fields.get("scale"))
        return made

    def spec(**fields: Any) -> LayerSpec:
        return LayerSpec(attention=None, mlp=None, **{"norms": Norms(), **fields})

    mlp, gain = Mlp.__new__(Mlp), NormSpec(key="g", eps=0.0, kind="gain")
    for fine in (made_layer(mlp), made_layer(None), made_layer(moe())):
        assert not adds_products(fine)
        assert divisible_on_gpu(fine)
    for layer in (
        made_layer(mlp, layer=spec(residual_scale=0.5)),
        made_layer(mlp, layer=spec(norms=Norms(post_mlp=gain))),
        made_layer(moe(gate=mlp)),
        made_layer(moe(scale=2.5)),
        made_layer(BlendedMoe.__new__(BlendedMoe)),
    ):
        assert adds_products(layer)
        assert divisible(layer)
        assert not divisible_on_gpu(layer)


def test_a_gpu_divides_no_layer_whose_base_grows() -> None:
    assert divisible_on_gpu(made_layer(None, rope=SPECS[0]))
    assert divisible(made_layer(None, rope=SPECS[6]))
    assert not divisible_on_gpu(made_layer(None, rope=SPECS[6]))


def test_a_layer_is_divided_only_where_it_follows_from_its_input() -> None:
    layer = made_layer
    mlp = Mlp.__new__(Mlp)
    assert divisible(layer(mlp))
    assert divisible(layer(None))
    assert not divisible(layer(object()))
    assert not divisible(layer(mlp, reads=0))
    assert not divisible(layer(mlp, projection="taken"))
    assert not divisible(layer(mlp, query_scale=QueryScale(beta=0.1, length=4, cast="scale")))
    other = layer(mlp)
    other.attention = mlp
    assert not divisible(other)


def test_a_rope_of_two_dtypes_leaves_its_layer_whole() -> None:
    """Tables are made for one dtype; queries and keys of two have the plain layer."""
    with load(tiny_model("qwen3"), ops="lean") as halved, load(tiny_model("qwen3"), ops="mlx") as plain:
        for loaded in (halved, plain):
            for layer in loaded._model.decoder.layers:
                norm = layer.attention.k_norm
                norm.compute = lambda x, *arrays, inner=norm.compute: inner(x, *arrays).astype(mx.bfloat16)
        params = SamplingParams(max_tokens=6, top_logprobs=1)
        left, right = (loaded.generate([5, 9, 2], params) for loaded in (halved, plain))
        assert (left.tokens, left.logprobs) == (right.tokens, right.logprobs)
        kinds = halved._model.decoder.layers[0].halves._turned
        assert kinds == {mx.float32: {mx.float32, mx.bfloat16}}


def test_layers_of_a_step_start_as_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[int, ...]] = []
    real = mx.async_eval
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: started.append(arrays[0].shape) or real(*arrays))
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    with load(tiny_model("llama"), drive="manual", ops="lean") as few:
        layers, width = len(few._model.decoder.layers), few.model_config["hidden_size"]
        few.generate([5, 9, 2, 7], params)
    assert started == [*[(1, 1, width)] * layers, (1,)] * 3
    started.clear()
    with load(tiny_model("llama"), drive="manual", ops="mlx") as plain:
        plain.generate([5, 9, 2, 7], params)
    assert started == [(1,)] * 3


def test_a_closed_engine_leaves_nothing_behind() -> None:
    """At once: traces hold weights, and a cycle of references would hold them until somebody collects it."""
    gc.collect()
    before = mx.get_active_memory()
    gc.disable()
    try:
        loaded = load(tiny_model("llama"), ops="lean")
        loaded.generate([5, 9, 2], SamplingParams(max_tokens=4))
        loaded.close()
        del loaded
        assert mx.get_active_memory() == before
    finally:
        gc.enable()


def test_a_gpu_refuses_what_it_would_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with load(tiny_model("llama"), ops="mlx") as loaded:
        decoder = loaded._model.decoder
        monkeypatch.setattr("engine.graph.lean.adds_products", lambda _: True)
        with pytest.raises(errors.InvalidValue, match="no layer of this model"):
            lean(decoder, "cuda")
        assert all(layer.halves is None for layer in decoder.layers)
