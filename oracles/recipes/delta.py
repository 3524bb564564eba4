"""Tiny configurations: gated delta hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.delta:"
BASE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
# (w - 1) + 1 is exact for w in [0.5, 2] only, and the hub layout stores w - 1; decays between a few tokens and a few
# hundred, and filters that pass what they see.
MEMORY = {
    r"(layernorm|model\.norm|q_norm|k_norm)\.weight$": (1.0, 0.1),
    r"A_log$": (0.0, 0.7),
    r"dt_bias$": (-2.0, 1.0),
    r"conv1d\.weight$": (0.3, 0.3),
}

# The scaled, tied embedding must not decide the next token alone.
KEYED = {r"conv\.weight$": (0.3, 0.3), r"embed_tokens": (0.0, 0.05)}


def _config(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts, fields):
        config.update(part)
    return config


ROPE = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 50000.0, "partial_rotary_factor": 0.5}
QWEN3_5 = {**DELTA, "full_attention_interval": 2, "rope_parameters": ROPE, "tie_word_embeddings": False}
OLMO_HYBRID = {
    **DELTA,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_allow_neg_eigval": True,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
QWEN3_NEXT = {**DELTA, "full_attention_interval": 2, "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
GEAR = {"layer_types": ["conv_mixer", "full_attention", "conv_mixer"], "tie_word_embeddings": True}


def _packed(path: str, block: int) -> dict[str, Any]:
    return {"path": path, "block": block, "embedding": path == "model.embed_tokens", "dtype": "float16"}


PRISM = {
    "model_type": "prism_hadamard_qwen35",
    "tensor_namespace": "mlx-vlm-qwen3_5",
    "gdn_activation_layout": "grouped",
    "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
    "modules": [
        _packed("model.embed_tokens", 512),
        _packed("lm_head", 512),
        _packed("model.layers.0.linear_attn.in_proj_qkv", 512),
        _packed("model.layers.0.linear_attn.out_proj", 0),
        _packed("model.layers.0.mlp.gate_proj", 512),
        _packed("model.layers.1.self_attn.q_proj", 512),
        _packed("model.layers.1.self_attn.o_proj", 0),
        _packed("model.layers.1.mlp.down_proj", 512),
    ],
    "text_config": _config(
        "qwen3_5_text", QWEN3_5, num_hidden_layers=2, hidden_size=512, intermediate_size=512, head_dim=32
    ),
}
PACKED = {**MEMORY, r"\.(scales|biases)$": (0.0, 0.03), r"(?<!conv1d)\.weight$": (0.0, 0.05)}

RECIPES: dict[str, Recipe] = {
    "qwen3_next": Recipe(
        config=_config("qwen3_next", QWEN3_NEXT, MOE, norm_topk_prob=True), hub=LAYOUTS + "experts", spread=MEMORY
    ),
    "qwen3_next-dense-step": Recipe(
        config=_config(
            "qwen3_next",
            QWEN3_NEXT,
            MOE,
            num_hidden_layers=4,
            full_attention_interval=4,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
            linear_num_key_heads=4,
            linear_value_head_dim=64,
            linear_conv_kernel_dim=2,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_scaling={"type": "linear", "factor": 2.0},
        ),
        hub=LAYOUTS + "experts",
        spread=MEMORY,
    ),
    "qwen3_5": Recipe(
        config={"model_type": "qwen3_5", "text_config": _config("qwen3_5_text", QWEN3_5)},
        hub=LAYOUTS + "tower",
        spread=MEMORY,
    ),
    "qwen3_5-flat-defaults": Recipe(
        config=_config(
            "qwen3_5", DELTA, num_hidden_layers=4, head_dim=None, tie_word_embeddings=True, attention_bias=True
        ),
        spread=MEMORY,
    ),
    "qwen3_5_moe": Recipe(
        config={"model_type": "qwen3_5_moe", "text_config": _config("qwen3_5_moe_text", QWEN3_5, MOE)},
        hub=LAYOUTS + "tower_experts",
        spread=MEMORY,
    ),
    "olmo_hybrid": Recipe(config=_config("olmo_hybrid", OLMO_HYBRID), hub=LAYOUTS + "filters", spread=MEMORY),
    "olmo_hybrid-no-rope": Recipe(
        config=_config(
            "olmo_hybrid",
            OLMO_HYBRID,
            num_hidden_layers=4,
            head_dim=None,
            num_key_value_heads=None,
            layer_types=None,
            layer_norm_epsilon=1e-3,
            linear_allow_neg_eigval=False,
            linear_num_key_heads=4,
            linear_value_head_dim=64,
            attention_bias=True,
            rope_parameters={"rope_theta": None},
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "filters",
        spread=MEMORY,
    ),
    "gear": Recipe(config=_config("gear", GEAR), norm_mean=0.0, hub=LAYOUTS + "scaled_filters", spread=KEYED),
    "gear-caps": Recipe(
        config=_config(
            "gear",
            GEAR,
            layer_types=["conv_mixer", "sliding_attention", "full_attention"],
            sliding_window=8,
            num_key_value_heads=None,
            hidden_activation="silu",
            attention_bias=True,
            query_pre_attn_scalar=48.0,
            conv_L_cache=4,
            rope_theta=10000.0,
            rope_local_base_freq=1000.0,
            rope_scaling={"type": "linear", "factor": 2.0},
            tie_word_embeddings=False,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
        ),
        window=8,
        norm_mean=0.0,
        hub=LAYOUTS + "scaled_filters",
        spread=KEYED,
    ),
    "prism_hadamard_qwen35": Recipe(config=PRISM, hub=LAYOUTS + "tower", spread=PACKED, quants=()),
}
