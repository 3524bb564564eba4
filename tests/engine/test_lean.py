"""Rotations and norms in fewer operations: the bits of MLX's own, and really fewer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import SamplingParams, errors, load
from engine.graph import norms
from engine.graph.lean import Tables, _traced, unfit_for_lean
from engine.graph.rope import build_rope
from engine.graph.spec import RopeSpec
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
    assert unfit_for_lean("cpu", "x86_64") == ""
    assert "aarch64" in unfit_for_lean("cpu", "aarch64")
    monkeypatch.setattr("engine.api.unfit_for_lean", lambda *_: "this is a metal")
    with pytest.raises(errors.InvalidValue, match="metal"):
        load(tiny_model("llama"), ops="lean")
