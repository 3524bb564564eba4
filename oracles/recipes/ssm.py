"""Tiny configurations: state-space models and their hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.ssm:"
# Decays between about 0.2 and 0.95 a token, so that a state neither dies at once nor grows.
SPREAD = {r"\.A_log$": (-1.0, 0.5), r"conv1d\.weight$": (0.0, 0.4)}
BASE: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2}


def _recipe(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> Recipe:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts):
        config.update(part)
    return Recipe(**{"config": config, "hub": LAYOUTS + "hub", "spread": SPREAD, **fields})


MAMBA2: dict[str, Any] = {
    "num_heads": 8,
    "head_dim": 16,
    "intermediate_size": 128,
    "state_size": 16,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
    "time_step_limit": [0.0, float("inf")],
    "time_step_rank": "auto",
}

MAMBA: dict[str, Any] = {
    "intermediate_size": 128,
    "state_size": 16,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_rank": "auto",
}

FALCON_H1: dict[str, Any] = {
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_ssm": 128,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    # Powers of two, which the hub layout divides by exactly. mlx-lm does not apply the keys' factor (register:
    # "falcon-h1-factors").
    "key_multiplier": 1.0,
    "attention_out_multiplier": 0.5,
    "embedding_multiplier": 4.0,
    "lm_head_multiplier": 0.5,
    "mlp_multipliers": [2.0, 0.25],
    "ssm_in_multiplier": 0.5,
    "ssm_multipliers": [0.5, 0.25, 2.0, 4.0, 0.125],
    "ssm_out_multiplier": 0.25,
}

ATTENTION: dict[str, Any] = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
GRANITE: dict[str, Any] = {
    **ATTENTION,
    "num_hidden_layers": 3,
    "layer_types": ["mamba", "attention", "mamba"],
    "attention_bias": False,
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.2,
    "logits_scaling": 3.0,
    "residual_multiplier": 0.6,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "shared_intermediate_size": 96,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_proj_bias": False,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_conv_bias": True,
    "position_embedding_type": "nope",
}
JAMBA: dict[str, Any] = {
    **ATTENTION,
    "num_hidden_layers": 4,
    "attn_layer_offset": 1,
    "attn_layer_period": 3,
    # In these layers both readings of the offset agree (register: "jamba-expert-layers").
    "expert_layer_offset": 1,
    "expert_layer_period": 2,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
NEMOTRON_H: dict[str, Any] = {
    **ATTENTION,
    "num_hidden_layers": 3,
    "attention_bias": False,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "mamba_proj_bias": False,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "n_groups": 2,
    "mlp_bias": False,
    "layer_norm_epsilon": 1e-3,
    "use_bias": False,
    "use_conv_bias": True,
}
NEMOTRON_H_MOE: dict[str, Any] = {
    **NEMOTRON_H,
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "M-*E",
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 96,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "topk_group": 1,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}
PLAMO2: dict[str, Any] = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size_per_head": 32,
    "intermediate_size": 64,
    "rms_norm_eps": 1e-5,
    "mamba_d_state": 16,
    "mamba_num_heads": 4,
}
# (1/5 + w), (5**-1.5 + w) and 1 + w are the factors.
OFFSET = {r"model.*norm\.weight$": (0.0, 0.3), r"(dt|B|C)_norm_weight$|[qk]_weight$": (1.0, 0.3)}

RECIPES: dict[str, Recipe] = {
    "mamba2": _recipe("mamba2", MAMBA2),
    "mamba2-untied": _recipe(
        "mamba2",
        MAMBA2,
        {
            "ssm_state_size": 32,
            "n_groups": 1,
            "use_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 2,
            "tie_word_embeddings": False,
            "time_step_limit": [0.5, 0.9],
        },
    ),
    "mamba": _recipe("mamba", MAMBA),
    "mamba-falcon": _recipe(
        "falcon_mamba",
        MAMBA,
        {
            "use_bias": True,
            "use_conv_bias": False,
            "time_step_rank": 32,
            "mixer_rms_eps": 1e-3,
            "tie_word_embeddings": False,
        },
    ),
    "falcon_h1": _recipe("falcon_h1", FALCON_H1, hub=LAYOUTS + "falcon_h1"),
    "falcon_h1-norms": _recipe(
        "falcon_h1",
        FALCON_H1,
        {
            "attention_bias": True,
            "mamba_proj_bias": True,
            "mlp_bias": True,
            "projectors_bias": True,
            "mamba_conv_bias": False,
            "mamba_n_groups": 1,
            "mamba_rms_norm": True,
            "tie_word_embeddings": False,
        },
        hub=LAYOUTS + "falcon_h1",
    ),
    "falcon_h1-norm-first": _recipe(
        "falcon_h1",
        FALCON_H1,
        {"num_hidden_layers": 1, "mamba_n_groups": 1, "mamba_rms_norm": True, "mamba_norm_before_gate": True},
        hub=None,
        quants=(),
    ),
    "granitemoehybrid": _recipe("granitemoehybrid", GRANITE, hub=LAYOUTS + "granitemoehybrid"),
    "granitemoehybrid-dense": _recipe(
        "granitemoehybrid",
        GRANITE,
        {
            "num_hidden_layers": 2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": None,
            "attention_bias": True,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "mamba_n_groups": 2,
            "position_embedding_type": "rope",
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
            "time_step_limit": [0.2, 2.0],
            "tie_word_embeddings": False,
        },
        hub=LAYOUTS + "granitemoehybrid",
    ),
    "granitemoehybrid-attention": _recipe(
        "granitemoehybrid",
        {k: v for k, v in GRANITE.items() if not k.startswith("mamba")},
        {
            "num_hidden_layers": 1,
            "layer_types": ["attention"],
            "num_local_experts": 0,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
        hub=None,
        quants=(),
    ),
    "jamba": _recipe("jamba", JAMBA, hub=LAYOUTS + "jamba"),
    "jamba-dense": _recipe(
        "jamba",
        JAMBA,
        {
            "num_hidden_layers": 2,
            "layers_block_type": ["attention", "mamba"],
            "num_experts": 1,
            "mamba_dt_rank": 32,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "nemotron_h": _recipe("nemotron_h", NEMOTRON_H_MOE, {"head_dim": 32}, hub=LAYOUTS + "nemotron_h"),
    "nemotron_h-latent": _recipe(
        "nemotron_h",
        NEMOTRON_H_MOE,
        {
            "num_hidden_layers": 3,
            "hybrid_override_pattern": ["E", "M", "*"],
            "mlp_bias": True,
            "n_group": 4,
            "topk_group": 2,
            "moe_latent_size": 128,
            "norm_topk_prob": False,
        },
        hub=LAYOUTS + "nemotron_h",
    ),
    "nemotron_h-dense": _recipe(
        "nemotron_h",
        NEMOTRON_H,
        {
            "layers_block_type": ["full_attention", "mlp", "linear_attention"],
            "attention_bias": True,
            "mamba_proj_bias": True,
            "mlp_bias": True,
            "use_conv_bias": False,
            "n_groups": 1,
            "time_step_limit": [0.2, 2.0],
        },
    ),
    "plamo2": _recipe("plamo2", PLAMO2, spread={**SPREAD, **OFFSET}),
    "plamo2-step": _recipe(
        "plamo2",
        PLAMO2,
        {"num_hidden_layers": 4, "mamba_step": 3, "mamba_d_conv": 3, "tie_word_embeddings": False},
        spread={**SPREAD, **OFFSET},
    ),
}
