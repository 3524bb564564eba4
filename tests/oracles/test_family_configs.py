"""A damaged config.json is a spec or a typed error, whatever field is damaged and however."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from engine import errors
from engine.graph.families import build_spec
from oracles.recipe import resolve
from oracles.recipes import GROUPS

RECIPES = {name: recipe for place in GROUPS.values() for name, recipe in resolve(place).items()}
BAD: tuple[Any, ...] = (None, "x", -1, 0, 1.5, True, [], {}, [None], {"type": "none of these"})


def damages(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies of a config with one field absent or of a wrong kind, those of its objects too."""
    for key, value in config.items():
        yield {k: v for k, v in config.items() if k != key}
        yield from ({**config, key: bad} for bad in BAD)
        if isinstance(value, dict):
            yield from ({**config, key: inner} for inner in damages(value))


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_damaged_field_is_a_spec_or_a_typed_error(name: str) -> None:
    for damaged in damages(RECIPES[name].config):
        with contextlib.suppress(errors.FrontierError):
            build_spec(damaged)


LLAMA_NAMED = [name for group in ("dense1", "moe1") for name in resolve(GROUPS[group]) if not name.startswith("dbrx")]


@pytest.mark.parametrize("name", LLAMA_NAMED)
def test_a_size_of_the_wrong_kind_is_named(name: str) -> None:
    config = RECIPES[name].config
    for key in ("vocab_size", "hidden_size", "rope_theta", "num_attention_heads"):
        with pytest.raises(errors.InvalidValue, match=key):
            build_spec({**config, key: "many"})


def test_gemma2_without_soft_caps_has_none() -> None:
    config = {**RECIPES["gemma2"].config, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    spec = build_spec(config)
    assert (spec.layers[0].attention.softcap, spec.head.softcap) == (None, None)


def test_hunyuan_names_a_missing_alpha() -> None:
    with pytest.raises(errors.InvalidValue, match=r"rope_scaling\.alpha"):
        build_spec({**RECIPES["hunyuan_v1_dense"].config, "rope_scaling": {"type": "dynamic", "factor": 1.0}})


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bailing_moe", "score_function", "tanh"),
        ("ernie4_5_moe", "moe_gate_act", "tanh"),
        ("glm4_moe", "topk_method", "greedy"),
        ("glm4_moe", "scoring_func", "softmax"),
        ("glm4_moe-grouped", "n_group", 3),
        ("glm4_moe-grouped", "n_group", 8),
        ("glm4_moe-grouped", "topk_group", 5),
        ("mixtral", "num_experts_per_tok", 9),
        ("hunyuan", "rope_scaling", {"type": "dynamic", "alpha": 100.0, "factor": 2.0}),
        ("hunyuan-by-layer", "moe_topk", [2, 2]),
        ("minimax", "scoring_func", "softmax"),
        ("dbrx", "attn_config", {"kv_n_heads": 3, "clip_qkv": 8.0, "rope_theta": 10000.0}),
        ("qwen3_next", "linear_num_value_heads", 3),
        ("qwen3_next", "attn_output_gate", False),
        ("qwen3_next", "layer_types", ["full_attention", "linear_attention", "linear_attention"]),
        ("olmo_hybrid", "layer_types", ["linear_attention", "sliding_attention", "full_attention"]),
        ("gear", "layer_types", ["conv", "full_attention", "full_attention"]),
        ("gear", "use_bidirectional_attention", True),
        ("prism_hadamard_qwen35", "tensor_namespace", "mlx-lm-text"),
        ("prism_hadamard_qwen35", "gdn_activation_layout", "flat"),
        ("prism_hadamard_qwen35", "quantization", {"bits": 4, "group_size": 64, "mode": "affine"}),
        ("prism_hadamard_qwen35", "modules", []),
        ("prism_hadamard_qwen35", "modules", [{"path": "lm_head", "block": 256, "embedding": False}]),
        ("kimi_linear", "mla_use_nope", False),
        ("kimi_linear", "moe_router_activation_func", "tanh"),
        ("kimi_linear-softmax", "use_grouped_topk", False),
        ("bailing_moe_v3", "no_kda_lora", False),
        ("bailing_moe_v3", "kda_safe_gate", False),
        ("bailing_moe_v3", "kda_lower_bound", 5.0),
        ("bailing_moe_v3", "score_function", "softmax"),
        ("bailing_moe_v3", "partial_rotary_factor", 0.25),
        ("bailing_moe_v3", "rope_interleave", False),
        ("kimi_k3-flat", "hidden_act", "silu"),
        ("kimi_k3-flat", "moe_router_activation_func", "softmax"),
        ("kimi_k3-flat", "mla_use_nope", False),
        ("kimi_k3-flat", "activation_situ_beta", 0.0),
    ],
)
def test_a_mixture_names_what_it_cannot_follow(name: str, field: str, value: Any) -> None:
    with pytest.raises(errors.InvalidValue, match=r"config\.json"):
        build_spec({**RECIPES[name].config, field: value})
