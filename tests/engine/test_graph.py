"""Loading: every parameter is wanted and read, or an error names it; every parameter matters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load
from engine.graph.families import build_spec
from engine.graph.rope import build_rope
from engine.graph.spec import RopeSpec
from oracles.tiny import FAMILIES, tiny_model

IDS = tuple(range(2, 40))


def edited(folder: Path, target: Path, edit: Callable[[dict[str, mx.array], dict[str, Any]], None]) -> Path:
    """A copy of a model folder whose weights and config went through `edit`."""
    shutil.copytree(folder, target)
    weights = dict(mx.load(str(target / "model.safetensors")))
    config = json.loads((target / "config.json").read_text())
    edit(weights, config)
    mx.eval(weights)
    mx.save_safetensors(str(target / "edited.safetensors"), weights)
    (target / "edited.safetensors").replace(target / "model.safetensors")
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_missing_left_over_and_misshapen_keys_are_all_named(llama_folder: Path, tmp_path: Path) -> None:
    def edit(weights: dict[str, mx.array], config: dict[str, Any]) -> None:
        del weights["model.layers.1.mlp.up_proj.weight"]
        weights["model.layers.9.mlp.up_proj.weight"] = mx.zeros((2, 2))
        weights["model.norm.weight"] = mx.zeros((5,))

    with pytest.raises(errors.WeightsMismatch) as caught:
        load(edited(llama_folder, tmp_path / "m", edit))
    assert caught.value.missing == ["model.layers.1.mlp.up_proj.weight"]
    assert caught.value.left_over == ["model.layers.9.mlp.up_proj.weight"]
    assert caught.value.shapes == ["model.norm.weight [5], expected [64]"]
    assert "\n" not in str(caught.value)


def test_an_unknown_model_type_lists_the_known(llama_folder: Path, tmp_path: Path) -> None:
    folder = edited(llama_folder, tmp_path / "m", lambda _, config: config.update(model_type="gpt9"))
    with pytest.raises(errors.UnknownField, match=r"gpt9.*gemma2.*qwen3"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rope_theta": -1}, "rope_theta"),
        ({"rope_scaling": 5}, "rope_scaling"),
        ({"quantization": 5}, "quantization"),
        ({"rope_scaling": {"type": "spiral"}}, "spiral"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"layer_types": ["sliding_attention"] * 3}, "sliding_window"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization": {"group_size": 48, "bits": 4, "model.layers.0.mlp.up_proj": {"group_size": 48}}}, "48"),
    ],
)
def test_a_config_that_cannot_be_honoured_is_refused(
    llama_folder: Path, tmp_path: Path, change: dict[str, Any], names: str
) -> None:
    folder = edited(llama_folder, tmp_path / "m", lambda _, config: config.update(change))
    with pytest.raises(errors.FrontierError, match=names):
        load(folder)


def test_truncated_weights_are_a_corrupt_file(llama_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(llama_folder, folder)
    blob = (folder / "model.safetensors").read_bytes()
    for size in (0, 4, 100, len(blob) - 10):
        (folder / "model.safetensors").write_bytes(blob[:size])
        with pytest.raises(errors.CorruptFile, match="model"):
            load(folder)


def test_a_dtype_is_applied_to_every_floating_array(llama_folder: Path) -> None:
    with load(llama_folder, dtype="bfloat16") as engine:
        assert engine.logits(IDS).dtype == mx.bfloat16
        assert engine.config.dtype == "bfloat16"
    with load(llama_folder) as engine:
        assert engine.logits(IDS).dtype == mx.float32


def test_a_gguf_import_is_not_cast_to_16_bits(llama_folder: Path, tmp_path: Path) -> None:
    mark = {"mlx_frontier": {"imported_from": "gguf", "scales": "float32"}}
    folder = edited(llama_folder, tmp_path / "m", lambda _, config: config.update(mark))
    for dtype in ("float16", "bfloat16"):
        with pytest.raises(errors.InvalidValue, match="dtype"):
            load(folder, dtype=dtype)
    load(folder, dtype="float32").close()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_parameter_moves_the_logits(family: str, tmp_path: Path) -> None:
    source = tiny_model(family)
    names = sorted(mx.load(str(source / "model.safetensors")))
    kinds = {name.replace(".1.", ".0.").replace(".2.", ".0."): name for name in names}
    with load(source) as engine:
        plain = engine.logits(IDS)
    for kind, name in kinds.items():

        def edit(weights: dict[str, mx.array], _: dict[str, Any], name: str = name) -> None:
            weights[name] = weights[name] + 0.05 * mx.random.normal(weights[name].shape, key=mx.random.key(1))

        with load(edited(source, tmp_path / kind, edit)) as engine:
            assert not mx.array_equal(engine.logits(IDS), plain), name


def test_parameters_are_counted_before_packing() -> None:
    with load(tiny_model("llama")) as dense, load(tiny_model("llama", quant="q4g32")) as packed:
        assert dense.parameters == packed.parameters
        assert dense.weights_bytes == 4 * dense.parameters
        assert packed.weights_bytes < dense.weights_bytes / 4


def test_rope_parameters_of_newer_configs_are_read() -> None:
    config = json.loads((tiny_model("llama") / "config.json").read_text())
    del config["rope_theta"]
    nested = {"rope_theta": 50000.0, "rope_type": "linear", "factor": 2.0}
    rope = build_spec({**config, "rope_parameters": nested}).layers[0].attention.rope
    assert rope.base == 50000.0
    assert rope.scaling["factor"] == 2.0


@pytest.mark.parametrize("kind", ["linear", "dynamic", "llama3", "yarn"])
def test_rope_variants_differ_from_the_default(kind: str) -> None:
    x = mx.random.normal((1, 1, 50, 32), key=mx.random.key(0))
    scaling = {"type": kind, "factor": 4.0, "original_max_position_embeddings": 16}
    plain = build_rope(RopeSpec(dims=32, base=10000.0, max_positions=16))
    scaled = build_rope(RopeSpec(dims=32, base=10000.0, scaling=scaling, max_positions=16))
    assert not mx.array_equal(plain(x, 3), scaled(x, 3))
