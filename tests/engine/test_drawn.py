"""Weights drawn on the device: the same in every load, spread as said, and refused where they cannot be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine import errors
from engine.artifacts.checkpoint import read_weights, weights_sha256
from engine.artifacts.drawn import DRAWN, MATRIX_STD, Draw, draw_weights, read_draw

TENSORS = {
    "a.weight": ("uint32", (64, 32)),
    "a.scales": ("float32", (64, 4)),
    "a.biases": ("float32", (64, 4)),
    "b.weight": ("bfloat16", (256, 128)),
    "norm.weight": ("bfloat16", (64,)),
    "b.bias": ("float32", (8,)),
}


def write(folder: Path, **changes: object) -> Path:
    draw = Draw(seed=3, bits=4, tensors=TENSORS)
    (folder / DRAWN).write_text(json.dumps(draw.as_dict() | changes), encoding="utf-8")
    return folder


def test_a_folder_gives_the_same_weights_each_time_and_another_seed_others(tmp_path: Path) -> None:
    first, again = read_weights(write(tmp_path)), read_weights(tmp_path)
    assert set(first) == set(TENSORS)
    assert all(mx.array_equal(first[name], again[name]) for name in TENSORS)
    before = weights_sha256(tmp_path)
    other = read_weights(write(tmp_path, seed=4))
    assert not mx.array_equal(first["b.weight"], other["b.weight"])
    assert not mx.array_equal(first["a.weight"], other["a.weight"])
    assert weights_sha256(tmp_path) != before


def test_matrices_are_spread_alike_packed_or_not_and_norms_leave_as_it_is() -> None:
    drawn = draw_weights(Draw(seed=0, bits=4, tensors=TENSORS))
    unpacked = mx.dequantize(drawn["a.weight"], drawn["a.scales"], drawn["a.biases"], group_size=64, bits=4)
    for values in (unpacked, drawn["b.weight"].astype(mx.float32)):
        assert abs(np.array(values).std() / MATRIX_STD - 1) < 0.05
        assert abs(np.array(values).mean()) < MATRIX_STD / 20
    assert np.all(np.array(drawn["norm.weight"].astype(mx.float32)) == 1)
    assert np.all(np.array(drawn["b.bias"]) == 0)
    assert {name: str(drawn[name].dtype).removeprefix("mlx.core.") for name in TENSORS} == {
        name: dtype for name, (dtype, _) in TENSORS.items()
    }


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="int8"):
        Draw(seed=0, bits=0, tensors={"x": ("int8", (1,))})
    with pytest.raises(errors.InvalidValue, match="shape"):
        Draw(seed=0, bits=0, tensors={"x": ("float32", (0, 2))})
    with pytest.raises(errors.InvalidValue, match="scales"):
        Draw(seed=0, bits=4, tensors={"x.biases": ("float32", (2, 2))})
    assert read_draw(tmp_path) is None
    (tmp_path / DRAWN).write_text('{"seed": 1}', encoding="utf-8")
    with pytest.raises(errors.CorruptFile, match=DRAWN):
        read_weights(tmp_path)


def test_files_of_tensors_go_before_a_draw(tmp_path: Path) -> None:
    mx.save_safetensors(str(write(tmp_path) / "model.safetensors"), {"x": mx.ones((2,))})
    assert set(read_weights(tmp_path)) == {"x"}
