"""Text towers of vision wrappers, and what families with windows refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load
from engine.graph.families import build_spec
from engine.graph.renames import Drop, Under, transposed_experts
from engine.graph.rope import build_rope
from oracles.recipe import find_recipe
from oracles.tiny import tiny_model

IDS = tuple(range(2, 30))
TOWERS = ("vision_tower.a.weight", "model.vision_tower.b.weight", "multi_modal_projector.c.weight")


def wrapped(llama: Path, target: Path, prefix: str, extra: tuple[str, ...] = TOWERS) -> Path:
    """A mistral3 folder around a llama: its keys under `prefix`, its config under text_config, other towers beside."""
    config = json.loads((llama / "config.json").read_text())
    weights = {f"{prefix}{k.removeprefix('model.')}": v for k, v in mx.load(str(llama / "model.safetensors")).items()}
    target.mkdir()
    mx.save_safetensors(str(target / "model.safetensors"), weights | dict.fromkeys(extra, mx.ones((2, 2))))
    outer: dict[str, Any] = {"model_type": "mistral3", "text_config": config}
    if "quantization" in config:
        paths = {f"language_model.{k}" if k.startswith("model.") else k: v for k, v in config["quantization"].items()}
        outer["quantization"] = paths
    (target / "config.json").write_text(json.dumps(outer))
    return target


def built(config: dict[str, Any]) -> None:
    """The spec and its ropes, whose numbers are checked where they are computed with."""
    for layer in build_spec(config).layers:
        build_rope(layer.attention.rope)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model.", "model."])
def test_a_tower_is_the_inner_model_in_every_layout(llama_folder: Path, tmp_path: Path, prefix: str) -> None:
    with load(llama_folder) as inner, load(wrapped(llama_folder, tmp_path / "m", prefix)) as tower:
        assert mx.array_equal(inner.logits(IDS), tower.logits(IDS))


def test_quantisation_entries_of_a_tower_are_under_its_prefix(tmp_path: Path) -> None:
    packed = tiny_model("llama", quant="mixed")
    with load(packed) as inner, load(wrapped(packed, tmp_path / "m", "language_model.model.")) as tower:
        assert mx.array_equal(inner.logits(IDS), tower.logits(IDS))


def test_a_towers_left_over_key_is_named_whole(llama_folder: Path, tmp_path: Path) -> None:
    folder = wrapped(llama_folder, tmp_path / "m", "language_model.model.", ("model.language_model.odd.weight",))
    with pytest.raises(errors.WeightsMismatch) as caught:
        load(folder)
    assert caught.value.left_over == ["language_model.model.odd.weight"]


def test_wrappers_without_rings_keep_windows_in_their_masks() -> None:
    spec = build_spec(find_recipe("mistral3").config)
    assert [(cache.kind, cache.window) for cache in spec.caches] == [("dense", 8), ("dense", None)] * 2
    ring = build_spec(find_recipe("ministral3").config)
    assert [cache.layout for cache in ring.caches] == ["rotating:8", "full"] * 2


def test_a_tied_vision_mixture_has_no_head() -> None:
    config = find_recipe("qwen3_vl_moe").config
    text = {k: v for k, v in config["text_config"].items() if k != "tie_word_embeddings"}
    assert not build_spec(config).head.tied
    assert build_spec({**config, "tie_word_embeddings": True, "text_config": text}).head.tied


def test_a_towers_own_vocabulary_counts_where_the_wrapper_has_none() -> None:
    config = dict(find_recipe("gemma3").config)
    assert build_spec(config).vocab == config.pop("vocab_size") == 101
    assert build_spec({**config, "text_config": {**config["text_config"], "vocab_size": 77}}).vocab == 77
    text = {k: v for k, v in config["text_config"].items() if k != "vocab_size"}
    assert build_spec({**config, "text_config": text}).vocab == 262208


@pytest.mark.parametrize(
    ("recipe", "change", "says"),
    [
        ("exaone4", {"sliding_window_pattern": "LLL"}, "sliding_window_pattern='LLL'"),
        ("exaone4", {"tie_word_embeddings": None}, "tie_word_embeddings"),
        ("ministral3", {"rope_parameters": {"rope_theta": 1e4}}, r"rope_parameters\.llama_4_scaling_beta"),
        ("ministral3", {"layer_types": ["chunked_attention"] * 4}, "layer_types='chunked_attention'"),
        ("olmo3", {"layer_types": ["full_attention"]}, "a list of 4 entries"),
        ("spark2_5", {"hidden_act": "silu"}, "hidden_act='silu'"),
        ("spark2_5", {"headwise_attn_output_gate": False}, "headwise_attn_output_gate=False"),
        ("spark2_5", {"rope_parameters": {"full_attention": {}}}, r"rope_parameters\.sliding_attention=None"),
        ("plamo3", {"sliding_window_pattern": 0}, "sliding_window_pattern=0"),
        ("cohere2", {"logit_scale": "big"}, "logit_scale='big'"),
        ("exaone4", {"sliding_window_pattern": 4}, "sliding_window_pattern=4"),
        ("olmo3", {"rope_scaling": 0}, "rope_scaling=0"),
        ("qwen2_vl", {"rope_scaling": {"type": "mrope", "mrope_section": 16}}, "mrope_section=16"),
        ("olmo3", {"rope_scaling": {"type": "yarn", "factor": None}}, "factor=None"),
        ("olmo3", {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": -1}}, "beta_fast=-1"),
    ],
)
def test_windowed_families_name_the_field_that_they_refuse(recipe: str, change: dict[str, Any], says: str) -> None:
    with pytest.raises((errors.InvalidValue, errors.UnsupportedConfig), match=says):
        built({**find_recipe(recipe).config, **change})


def test_towers_name_the_field_that_they_refuse() -> None:
    llama4 = find_recipe("llama4").config
    with pytest.raises(errors.InvalidValue, match=r"text_config\.num_experts_per_tok=2"):
        build_spec({**llama4, "text_config": {**llama4["text_config"], "num_experts_per_tok": 2}})
    with pytest.raises(errors.InvalidValue, match=r"text_config\.no_rope_layers=\[1, 1, 0, 1, 1\]"):
        build_spec({**llama4, "text_config": {**llama4["text_config"], "no_rope_layers": [1, 1, 0, 1, 1]}})
    with pytest.raises(errors.InvalidValue, match="text_config=None"):
        build_spec({"model_type": "pixtral"})
    with pytest.raises(errors.InvalidValue, match=r"text_config\.rope_parameters=None"):
        build_spec({"model_type": "mistral3", "text_config": {"model_type": "mistral4"}})


def test_original_fp8_of_ministral3_becomes_bfloat16() -> None:
    rules = build_spec(find_recipe("mistral3").config).rules
    name = "language_model.model.layers.0.mlp.up_proj"
    values = mx.array([[1.0, -0.5], [2.0, 448.0]])
    arrays = {
        f"model.{name.replace('.model', '')}.weight": mx.to_fp8(values),
        f"model.{name.replace('.model', '')}.weight_scale_inv": mx.array(0.25, mx.bfloat16),
        f"model.{name.replace('.model', '')}.activation_scale": mx.array(3.0),
    }
    for rule in rules:
        arrays = rule(arrays)
    assert list(arrays) == [f"{name}.weight"]
    assert arrays[f"{name}.weight"].dtype == mx.bfloat16
    assert mx.array_equal(arrays[f"{name}.weight"], values * 0.25)


def test_rules_below_a_prefix_see_keys_without_it() -> None:
    rule = Under("tower", (Drop((r"^head\.",)),))
    arrays = dict.fromkeys(("head.w", "tower.head.w", "tower.body.w"), mx.ones(1))
    assert sorted(rule(arrays)) == ["head.w", "tower.body.w"]


def test_transposed_experts_are_cut_and_turned() -> None:
    both, down = mx.arange(2 * 3 * 8).reshape(2, 3, 8), mx.arange(2 * 4 * 3).reshape(2, 4, 3)
    arrays = {"a.mlp.experts.gate_up_proj": both, "a.mlp.experts.down_proj": down}
    for rule in transposed_experts("mlp", "stack"):
        arrays = rule(arrays)
    assert mx.array_equal(arrays["a.mlp.stack.gate_proj.weight"], both[..., :4].swapaxes(1, 2))
    assert mx.array_equal(arrays["a.mlp.stack.up_proj.weight"], both[..., 4:].swapaxes(1, 2))
    assert mx.array_equal(arrays["a.mlp.stack.down_proj.weight"], down.swapaxes(1, 2))
