"""The seeded tiny models: same seed same bytes, everything random, packing as asked."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine import errors
from oracles.record import model_sha256
from oracles.tiny import FAMILIES, RECIPES, build, tiny_model


def test_the_seven_families_and_their_variants_are_there() -> None:
    assert FAMILIES == ("llama", "mistral", "qwen2", "qwen3", "gemma2", "olmo2", "glm4")
    assert set(FAMILIES) <= set(RECIPES)
    assert len(RECIPES) > len(FAMILIES)


def test_a_seed_means_the_same_model_and_another_seed_another(tmp_path: Path) -> None:
    first, again = (tiny_model("qwen2", seed=3, root=tmp_path / name) for name in ("a", "b"))
    other = tiny_model("qwen2", seed=4, root=tmp_path / "a")
    assert model_sha256(first) == model_sha256(again) != model_sha256(other)
    assert tiny_model("qwen2", seed=3, root=tmp_path / "a") == first


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_no_parameter_is_constant(family: str) -> None:
    _, weights = build(family, dtype="float32", quant=None, seed=0)
    for name, value in weights.items():
        array = np.array(value)
        assert len(np.unique(array)) > array.size // 2, name
        centre = 1.0 if name.endswith(("norm.weight", "layernorm.weight")) and family != "gemma2" else 0.0
        assert abs(float(array.mean()) - centre) < 0.2, name


def test_packed_weights_and_the_config_agree() -> None:
    config, weights = build("llama", dtype="bfloat16", quant="mixed", seed=0)
    quantization = config["quantization"]
    assert (quantization["bits"], quantization["group_size"]) == (4, 64)
    assert quantization["model.layers.2.self_attn.o_proj"] is False
    assert "model.layers.2.self_attn.o_proj.scales" not in weights
    for block, bits, group in ((0, 4, 64), (1, 8, 32)):
        path = f"model.layers.{block}.mlp.up_proj"
        assert weights[f"{path}.weight"].dtype == mx.uint32
        assert weights[f"{path}.weight"].shape == (128, 64 * bits // 32)
        assert weights[f"{path}.scales"].shape == (128, 64 // group)
        assert weights[f"{path}.scales"].dtype == mx.bfloat16
    assert quantization["model.layers.1.mlp.up_proj"] == {"bits": 8, "group_size": 32}


def test_the_folder_is_whole(tmp_path: Path) -> None:
    folder = tiny_model("glm4", dtype="float16", quant="q4g32", root=tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path for path in tmp_path.iterdir() if path != folder] == []
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] == "glm4"


@pytest.mark.parametrize(("field", "value"), [("dtype", "int8"), ("quant", "q5")])
def test_unknown_forms_are_refused(field: str, value: str) -> None:
    with pytest.raises(errors.InvalidValue, match=value):
        tiny_model("llama", **{field: value})  # type: ignore[arg-type]


def test_an_unknown_family_lists_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="glm4"):
        tiny_model("gpt2")
