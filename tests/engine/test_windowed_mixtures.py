"""Families afmoe to step3p5: what their configs may ask for, what mlx-lm drops of it, and SparseMixer's picks."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine import errors
from engine.graph.families import build_spec
from engine.graph.mixtures import pick
from engine.graph.spec import MlpSpec, MoeSpec
from oracles.recipe import find_recipe

LINEAR = {"rope_type": "linear", "factor": 2.0}


def built(recipe: str, **changes: Any) -> Any:
    """The spec of a recipe's config with `changes`; a change to ... takes the key away."""
    config = {**find_recipe(recipe).config, **changes}
    return build_spec({key: value for key, value in config.items() if value is not ...})


@pytest.mark.parametrize(
    ("recipe", "changes", "names"),
    [
        ("afmoe", {"score_func": "tanh"}, "score_func"),
        ("afmoe", {"score_func": ["sigmoid"]}, "score_func"),
        ("afmoe", {"layer_types": ["full_attention"] * 3}, "layer_types"),
        ("exaone_moe", {"topk_method": "greedy"}, "topk_method"),
        ("exaone_moe", {"is_moe_layer": [True]}, "is_moe_layer"),
        ("exaone_moe", {"rope_parameters": "default"}, "rope_parameters"),
        ("gpt_oss", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("laguna", {"moe_router_score_func": "softmax"}, "moe_router_score_func"),
        ("laguna", {"num_attention_heads_per_layer": [4, 6, 6]}, "num_attention_heads_per_layer"),
        ("laguna", {"num_attention_heads_per_layer": [4, "6", 6, 4]}, "num_attention_heads_per_layer"),
        ("laguna", {"moe_router_logit_softcapping": -1}, "moe_router_logit_softcapping"),
        ("mellum", {"layer_types": ...}, "layer_types"),
        ("mimo_v2_flash", {"topk_method": "greedy"}, "topk_method"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        ("mimo_v2_flash", {"attention_value_scale": "half"}, "attention_value_scale"),
        ("phimoe", {"rope_scaling": "longrope"}, "rope_scaling"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
        ("step3p5", {"moe_layers_enum": "1;2"}, "moe_layers_enum"),
        ("step3p5", {"rope_theta": [1e4, 1e4]}, "rope_theta"),
        ("step3p5", {"swiglu_limits": ["low"] * 4}, "swiglu_limits"),
    ],
)
def test_what_a_family_cannot_honour_is_refused_by_name(recipe: str, changes: dict[str, Any], names: str) -> None:
    with pytest.raises(errors.InvalidValue, match=names):
        built(recipe, **changes)


def test_a_family_without_a_reference_is_known_and_not_built() -> None:
    with pytest.raises(errors.NotBuilt, match="muse_spark"):
        built("muse_spark")


def test_an_odd_gpt_oss_runs_its_last_layer() -> None:
    """mlx-lm leaves it out (register: "gpt-oss-last-layer-skipped")."""
    layers = built("gpt_oss", num_hidden_layers=3, layer_types=...).layers
    assert [layer.attention.cache for layer in layers] == ["rotating", "dense", "rotating"]


def test_qwen2_moe_normalises_and_stays_dense_where_asked() -> None:
    """mlx-lm reads none of the three fields (register: "qwen2-moe-fields-unread")."""
    plain = built("qwen2_moe").layers
    assert [type(layer.mlp) for layer in plain] == [MoeSpec, MoeSpec]
    assert plain[0].mlp.router.normalise is None
    asked = built("qwen2_moe", norm_topk_prob=True, decoder_sparse_step=2, num_hidden_layers=4, mlp_only_layers=[3])
    assert [type(layer.mlp) for layer in asked.layers] == [MlpSpec, MoeSpec, MlpSpec, MlpSpec]
    assert asked.layers[1].mlp.router.normalise == "sum"


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("qwen2_moe", {"rope_scaling": LINEAR}),
        ("qwen3_moe", {"rope_scaling": LINEAR}),
        ("solar_open", {"rope_scaling": LINEAR}),
        ("exaone_moe", {"rope_parameters": {**LINEAR, "rope_theta": 500.0}}),
        ("mellum", {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LINEAR}}),
    ],
)
def test_scaled_ropes_are_applied(recipe: str, changes: dict[str, Any]) -> None:
    """mlx-lm drops them (register: "rope-scaling-ignored")."""
    rope = built(recipe, **changes).layers[0].attention.rope
    assert rope.scaling["factor"] == LINEAR["factor"]


def test_the_nested_base_of_exaone_moe_goes_first() -> None:
    spec = built("exaone_moe", rope_theta=10000.0, rope_parameters={"rope_theta": 500.0})
    assert spec.layers[0].attention.rope.base == 500.0


def test_sparsemixer_weighs_a_pick_against_its_close_rivals_only() -> None:
    ids, scores = pick(mx.array([4.0, 3.9, 1.0, -8.0]), top_k=2, jitter=0.05)
    assert ids.tolist() == [0, 1]
    close = mx.softmax(mx.array([4.0, 3.9, -mx.inf, -mx.inf]), precise=True)[0].item()
    assert scores.tolist() == [close, 1.0]
