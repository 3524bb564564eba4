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
from oracles.layouts import sparse
from oracles.parity import EQUAL, Cell, CellResult, Pair
from oracles.recipe import Form, find_recipe, resolve
from oracles.tiny import write_model

pytestmark = pytest.mark.matrix

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


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v32", "mimo_v2_flash", "minimax"])
def test_float8_blocks_of_the_original(builder: Worker, tmp_path: Path, name: str) -> None:
    method = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    method |= {"scale_fmt": "ue8m0"} if name == "deepseek_v32" else {}
    folder = original(builder, tmp_path, name, Form(), method, float8)
    held = mx.load(str(folder / "model.safetensors"))
    assert isinstance(held, dict)
    assert held["model.layers.0.self_attn.o_proj.weight"].dtype == mx.uint8
    result = compared(name, folder)
    assert result.status == EQUAL, result.why


def minimax_m3_mxfp8(weights: Weights, config: Any) -> Weights:
    """Bytes with a scale for each 32 of them, the routers dense."""
    out = {}
    for name, value in sparse.minimax_m3_vl(weights, config).items():
        at, _, part = name.rpartition(".")
        if at.endswith("block_sparse_moe.gate"):
            packed, scales, biases = (weights[f"{at}.{part}"] for part in ("weight", "scales", "biases"))
            out[f"{at}.weight"] = mx.dequantize(packed, scales, biases, 64, 8)
        elif part == "scales":
            out[f"{at}.weight_scale_inv"] = value
        else:
            out[name] = value.view(mx.uint8) if value.dtype == mx.uint32 else value
    return out


def deepseek_v41_tiles(weights: Weights, config: Any) -> Weights:
    """8-bit floats with a scale for each tile of 32 rows, and experts in 4 bits with one for each row."""
    changed = dict(weights)
    for name in [key.removesuffix(".scales") for key in weights if ".switch_mlp." in key and key.endswith(".scales")]:
        dense = mx.dequantize(weights[f"{name}.weight"], weights[f"{name}.scales"], None, 32, 8, mode="mxfp8")
        for part, array in zip(("weight", "scales"), mx.quantize(dense, 32, 4, mode="mxfp4"), strict=True):
            changed[f"{name}.{part}"] = array
    changed = {k: v.flatten(0, 1) if k.endswith(".o_a_proj.scales") else v for k, v in changed.items()}
    out = {}
    for name, value in sparse.deepseek_v41(changed, config).items():
        if name.endswith(".scales"):
            scale = value if ".experts." in name else value[::32]
            # Exponents, or the powers of two themselves.
            out[name[:-1]] = mx.power(2.0, scale.astype(mx.float32) - 127) if "wq_a" in name else scale
        else:
            out[name] = value.view(mx.uint8) if value.dtype == mx.uint32 else value
    return out


@pytest.mark.parametrize(
    ("name", "method", "change"),
    [
        ("minimax_m3_vl", {"quant_method": "mxfp8"}, minimax_m3_mxfp8),
        (
            "deepseek_v41",
            {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [32, 32]},
            deepseek_v41_tiles,
        ),
    ],
)
def test_small_floats_of_the_original_stay_packed(
    builder: Worker, tmp_path: Path, name: str, method: dict[str, Any], change: Callable[[Weights, Any], Weights]
) -> None:
    folder = original(builder, tmp_path, name, Form(quant="mxfp8"), method, change)
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


def float8_experts(weights: Weights, config: Any) -> Weights:
    """mistral4's hub layout with attention and stacked experts as 8-bit floats, one scale a matrix."""
    out = resolve(find_recipe("mistral4").hub)(weights, config)
    for name, value in list(out.items()):
        if ".experts." in name or name.endswith("_proj.weight"):
            out[name] = mx.to_fp8(value)
            scales = 0.5 + mx.arange(value.shape[0]).reshape(-1, 1, 1) / 4 if value.ndim == 3 else mx.array(0.75)
            out[f"{name}_scale_inv"] = scales
            out[f"{name.removesuffix('.weight')}.activation_scale"] = mx.array(2.0)
    return out


def test_float8_experts_of_the_original_mistral4(builder: Worker, tmp_path: Path) -> None:
    method = {"quant_method": "fp8", "activation_scheme": "static"}
    folder = original(builder, tmp_path, "mistral4", Form(), method, float8_experts)
    held = mx.load(str(folder / "model.safetensors"))
    assert isinstance(held, dict)
    assert held["model.layers.1.mlp.experts.gate_up_proj_scale_inv"].shape == (8, 1, 1)
    result = compared("mistral4", folder)
    assert result.status == EQUAL, result.why


def integer_experts(weights: Weights, config: Any) -> Weights:
    """kimi_k25's hub layout with experts as signed 4-bit integers in groups of 32, eight to a word."""
    out: Weights = {}
    for name, value in resolve(find_recipe("kimi_k25").hub)(weights, config).items():
        if ".experts." in name:
            codes, scales, _ = mx.quantize(value, group_size=32, bits=4)
            out[f"{name}_packed"], out[f"{name}_scale"] = codes.view(mx.int32), scales
            out[f"{name}_shape"] = mx.array(value.shape)
        else:
            out[name] = value
    return out


def test_integer_experts_of_the_original_kimi_k25(builder: Worker, tmp_path: Path) -> None:
    method = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    folder = original(builder, tmp_path, "kimi_k25", Form(), method, integer_experts)
    result = compared("kimi_k25", folder)
    assert result.status == EQUAL, result.why


def packed_heads(weights: Weights, config: Any) -> Weights:
    """deepseek_v3's hub layout with the projection to keys and values in affine4."""
    out: Weights = {}
    for name, value in resolve(find_recipe("deepseek_v3").hub)(weights, config).items():
        if name.endswith("kv_b_proj.weight"):
            at = name.removesuffix("weight")
            out[name], out[f"{at}scales"], out[f"{at}biases"] = mx.quantize(value, group_size=32, bits=4)
        else:
            out[name] = value
    return out


def test_packed_keys_and_values_are_cut_by_heads(builder: Worker, tmp_path: Path) -> None:
    folder = original(builder, tmp_path, "deepseek_v3", Form(), {}, packed_heads)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization"] = {"group_size": 32, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = compared("deepseek_v3", folder)
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
