"""Decoders that loop, share caches or nest their ropes: what they refuse, and what parity cannot show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load
from engine.graph.families import build_spec
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe

IDS = tuple(range(2, 30))


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


def built(builder: Worker, recipe: str, folder: Path) -> Path:
    builder.build(find_recipe(recipe), Form(), folder)
    return folder


def config_of(recipe: str, **changes: Any) -> dict[str, Any]:
    return {**find_recipe(recipe).config, **changes}


def text_of(recipe: str, **changes: Any) -> dict[str, Any]:
    config = find_recipe(recipe).config
    return {**config, "text_config": {**config["text_config"], **changes}}


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (config_of("bitnet"), errors.NotBuilt, "Metal"),
        (config_of("nanbeige", loop_share_kv=True), errors.NotBuilt, "loop_share_kv"),
        (config_of("iquestloopcoder", loop_num=3), errors.InvalidValue, "loop_num"),
        (config_of("afm7", num_kv_reuse_layers=4), errors.InvalidValue, "num_kv_reuse_layers"),
        (config_of("gemma4_text", num_kv_shared_layers=3), errors.InvalidValue, "num_kv_shared_layers"),
        (config_of("gemma4_text", layer_types=["recurrent"] * 5), errors.InvalidValue, "layer_types"),
        (config_of("smollm3", no_rope_layers=[1, 0]), errors.InvalidValue, "no_rope_layers"),
        (config_of("stablelm", num_attention_heads=5), errors.InvalidValue, "num_attention_heads"),
        (text_of("gemma3n", altup_num_inputs=1), errors.InvalidValue, "altup_num_inputs"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(
    config: Mapping[str, Any], error: type[errors.FrontierError], text: str
) -> None:
    with pytest.raises(error, match=text):
        build_spec(config)


def test_ropes_nested_by_layer_type_are_read_where_the_flat_ones_are_absent() -> None:
    flat = config_of("gemma3_text", rope_scaling={"rope_type": "linear", "factor": 8.0})
    nested = {k: v for k, v in flat.items() if not k.startswith("rope_")}
    nested["rope_parameters"] = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": flat["rope_theta"]},
        "sliding_attention": {"rope_type": "default", "rope_theta": flat["rope_local_base_freq"]},
    }
    ropes = [[layer.attention.rope for layer in build_spec(config).layers] for config in (flat, nested)]
    assert [(r.base, r.scaling.get("factor")) for r in ropes[0]] == [
        (r.base, r.scaling.get("factor")) for r in ropes[1]
    ]
    assert {r.base for r in ropes[1]} == {flat["rope_theta"], flat["rope_local_base_freq"]}


def test_a_second_pass_shares_its_weights_and_has_caches_of_its_own(builder: Worker, tmp_path: Path) -> None:
    folder = built(builder, "iquestloopcoder", tmp_path / "m")
    stored = sum(array.size for array in mx.load(str(folder / "model.safetensors")).values())
    with load(folder) as engine:
        assert engine.parameters == stored
        layouts = [cache.layout for cache in engine.trace(IDS).caches]
    assert layouts == ["full", "full", "rotating:8", "rotating:8"]


def test_a_quantised_afm7_runs_where_the_oracle_cannot_load_it(builder: Worker, tmp_path: Path) -> None:
    folder = built(builder, "afm7", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"quantization": {"group_size": 32, "bits": 8}}
    packed, unpacked = {}, {}
    for name, array in mx.load(str(folder / "model.safetensors")).items():
        packed[name] = unpacked[name] = array
        if array.ndim == 2:
            parts = mx.quantize(array, group_size=32, bits=8)
            packed |= {
                name.removesuffix("weight") + k: v for k, v in zip(("weight", "scales", "biases"), parts, strict=True)
            }
            unpacked[name] = mx.dequantize(*parts, group_size=32, bits=8)
    for label, weights in (("packed", packed), ("unpacked", unpacked)):
        (tmp_path / label).mkdir()
        mx.save_safetensors(str(tmp_path / label / "model.safetensors"), weights)
    (tmp_path / "packed" / "config.json").write_text(json.dumps(config))
    (tmp_path / "unpacked" / "config.json").write_text((folder / "config.json").read_text())
    with load(tmp_path / "packed") as engine, load(tmp_path / "unpacked") as dense:
        assert engine.parameters == dense.parameters
        assert mx.array_equal(engine.logits(IDS).argmax(-1), dense.logits(IDS).argmax(-1))


@pytest.mark.parametrize("recipe", ["stablelm", "afm7"])
def test_quantised_keys_are_attended_where_the_oracle_dies(builder: Worker, recipe: str, tmp_path: Path) -> None:
    found = find_recipe(recipe)
    wide = replace(found, config={**found.config, "num_heads": 2})  # a head_dim of 32, which a group size divides
    builder.build(wide, Form(), tmp_path / "m")
    far = {}
    with load(tmp_path / "m") as plain:
        reference = plain.trace(IDS, chunk=7).logits
    for bits in (8, 4):
        with load(tmp_path / "m", kv=f"kv{bits}:g32") as packed:
            trace = packed.trace(IDS, chunk=7)
        assert set(trace.kv_live[7:]) == {f"affine{bits}:g32"}
        assert mx.array_equal(trace.logits[:7], reference[:7])
        far[bits] = mx.abs(trace.logits - reference).max().item()
    assert 0 < far[8] < far[4]
