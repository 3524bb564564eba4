"""The engine's affine quantiser against mlx-lm's quantize_model on the same plan, word by word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model

from engine import QuantPlan, errors, load, quantize_folder

ZOO = Path(__file__).resolve().parents[1] / "zoo"
PLANS = {
    "llama-3m": QuantPlan(bits=4),
    "qwen3-1m": QuantPlan(bits=4, eight=("embed_tokens", "v_proj", "layers.0")),
    "moe-1m": QuantPlan(bits=4, group_size=32, eight=("down_proj",)),
}


def by_mlx_lm(folder: Path, plan: QuantPlan) -> dict[str, mx.array]:
    """Every array of the model that mlx-lm packs, the plan said again in its own words."""
    model, config = load_model(folder)

    def chosen(path: str, module: Any) -> bool | dict[str, Any]:
        wide = any(f".{part}." in f".{path}." for part in plan.eight)
        return {"group_size": plan.group_size, "bits": 8, "mode": "affine"} if wide else True

    packed, _ = quantize_model(model, config, plan.group_size, plan.bits, quant_predicate=chosen)
    return dict(tree_flatten(packed.parameters()))


@pytest.mark.parametrize("name", PLANS)
def test_words_scales_and_biases_are_mlx_lms(name: str, tmp_path: Path) -> None:
    """A module at another width, another group or scales in another dtype would show."""
    folder = quantize_folder(ZOO / name, tmp_path / "packed", PLANS[name])
    made, wanted = mx.load(str(folder / "model.safetensors")), by_mlx_lm(ZOO / name, PLANS[name])
    assert isinstance(made, dict)
    assert made.keys() == wanted.keys()
    assert sum(key.endswith(".scales") for key in made) > 10
    for key, array in wanted.items():
        assert made[key].dtype == array.dtype
        assert mx.array_equal(made[key], array), key


def test_both_stacks_load_it_and_agree(tmp_path: Path) -> None:
    """The config's entry for a module of its own width: without it the shapes are refused."""
    folder = quantize_folder(ZOO / "qwen3-1m", tmp_path / "packed", PLANS["qwen3-1m"])
    model, _ = load_model(folder)
    ids = list(range(20, 60))
    with load(folder) as engine:
        own = engine.logits(ids, chunk=64, tail=1)
        wanted = model(mx.array([ids]))[0]
        assert mx.argmax(own, -1).tolist() == mx.argmax(wanted, -1).tolist()


def test_plans_that_fit_nothing(tmp_path: Path) -> None:
    """Each is refused before anything is written."""
    for field, given in (("bits", {"bits": 7}), ("group_size", {"bits": 4, "group_size": 48})):
        with pytest.raises(errors.InvalidValue, match=field):
            QuantPlan(**given)
    with pytest.raises(errors.InvalidValue, match="eight"):
        quantize_folder(ZOO / "qwen3-1m", tmp_path / "packed", QuantPlan(bits=4, eight=("no_proj",)))
    packed = quantize_folder(ZOO / "qwen3-1m", tmp_path / "once", QuantPlan(bits=4))
    assert json.loads((packed / "config.json").read_text())["quantization"]["bits"] == 4
    with pytest.raises(errors.InvalidValue, match="source"):
        quantize_folder(packed, tmp_path / "twice", QuantPlan(bits=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["once"]
