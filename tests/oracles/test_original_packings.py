"""Original checkpoints that come packed: mxfp4 experts with gate and up rows in turn, 8-bit floats in blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load
from oracles.architectures import LOADED_CHUNK, forced
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.layouts import moe2 as layouts
from oracles.parity import EQUAL, Cell, CellResult, Pair
from oracles.recipe import Form, find_recipe, resolve
from oracles.tiny import write_model

PROMPT = 35
Weights = dict[str, mx.array]


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


def original(
    builder: Worker,
    root: Path,
    name: str,
    form: Form,
    method: dict[str, Any],
    change: Callable[[Weights, Any], Weights],
) -> Path:
    """The recipe's folder with other weights, and with `quantization_config` as its only word on packing."""
    saved = builder.make(find_recipe(name), form, root)
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    config.pop("quantization", None)
    weights = mx.load(str(saved / "model.safetensors"))
    assert isinstance(weights, dict)
    folder = root / "original"
    write_model(folder, {**config, "quantization_config": method}, change(weights, config))
    return folder


def compared(name: str, folder: Path) -> CellResult:
    probe = forced(find_recipe(name), PROMPT, LOADED_CHUNK)
    cell = Cell(name=name, dtype="packed", model=str(folder), probe=probe, steps=0, chunk=LOADED_CHUNK, compile=False)
    with Pair("bundled") as pair:
        return pair.run(cell)


def float8(weights: Weights, config: Any) -> Weights:
    """The hub's layout with attention, MLPs and experts as 8-bit floats, a scale for every 128 x 128 block."""
    out = resolve(find_recipe(config["model_type"]).hub)(weights, config)
    for name, value in list(out.items()):
        if value.ndim == 2 and any(part in name for part in ("self_attn", "layers.0.mlp", "experts.")):
            out[name] = mx.to_fp8(value)
            blocks = [-(-n // 128) for n in value.shape]
            out[name + "_scale_inv"] = 0.5 + mx.arange(blocks[0] * blocks[1]).reshape(blocks) / 4
    return out


def test_mxfp4_experts_of_the_original_gpt_oss(builder: Worker, tmp_path: Path) -> None:
    folder = original(builder, tmp_path, "gpt_oss", Form(quant="mxfp4"), {"quant_method": "mxfp4"}, layouts.gpt_oss)
    held = mx.load(str(folder / "model.safetensors"))
    assert isinstance(held, dict)
    assert held["model.layers.0.mlp.experts.gate_up_proj_blocks"].dtype == mx.uint8
    result = compared("gpt_oss", folder)
    assert result.status == EQUAL, result.why


@pytest.mark.parametrize("name", ["mimo_v2_flash", "minimax"])
def test_float8_blocks_of_the_original(builder: Worker, tmp_path: Path, name: str) -> None:
    method = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    folder = original(builder, tmp_path, name, Form(), method, float8)
    held = mx.load(str(folder / "model.safetensors"))
    assert isinstance(held, dict)
    assert held["model.layers.0.self_attn.q_proj.weight"].dtype == mx.uint8
    result = compared(name, folder)
    assert result.status == EQUAL, result.why


def test_float8_blocks_that_no_rule_reads_are_named(builder: Worker, tmp_path: Path) -> None:
    folder = original(builder, tmp_path, "mellum", Form(), {"quant_method": "fp8"}, float8)
    with pytest.raises(errors.WeightsMismatch, match="weight_scale_inv"):
        load(folder)


def packed_experts(weights: Weights, config: Any) -> Weights:
    """kimi_k3's hub layout with experts in mxfp4, as bytes under other names."""
    out: Weights = {}
    for name, value in resolve(find_recipe("kimi_k3").hub)(weights, config).items():
        if ".experts." in name:
            codes, scales = mx.quantize(value, group_size=32, bits=4, mode="mxfp4")
            out |= {f"{name}_packed": codes.view(mx.uint8), f"{name}_scale": scales}
        else:
            out[name] = value
    return out


def test_packed_experts_of_the_original_kimi_k3(builder: Worker, tmp_path: Path) -> None:
    method = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    folder = original(builder, tmp_path, "kimi_k3", Form(), method, packed_experts)
    held = mx.load(str(folder / "model.safetensors"))
    assert isinstance(held, dict)
    assert held["language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight_packed"].dtype == mx.uint8
    result = compared("kimi_k3", folder)
    assert result.status == EQUAL, result.why


def test_dense_experts_of_the_original_gpt_oss(builder: Worker, tmp_path: Path) -> None:
    """mlx-lm cannot load these (see the fault register), so the reference is the same model by mlx-lm's names."""
    recipe = find_recipe("gpt_oss")
    saved = builder.make(recipe, Form(), tmp_path)
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    weights = mx.load(str(saved / "model.safetensors"))
    assert isinstance(weights, dict)
    hub = {}
    for name, value in layouts.gpt_oss(weights, config).items():
        dense = ".experts." in name and name.endswith(".weight")
        hub[name.removesuffix(".weight") if dense else name] = value.swapaxes(1, 2) if dense else value
    write_model(tmp_path / "dense", config, hub)
    ids = list(range(2, 40))
    logits = [load(folder).logits(ids) for folder in (saved, tmp_path / "dense")]
    assert mx.array_equal(*logits)
