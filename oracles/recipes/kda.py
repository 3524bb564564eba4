"""Tiny configurations: delta hybrids with a gate per channel (KDA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.kda:"
BASE: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "num_experts": 8,
    "moe_intermediate_size": 64,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
# A state that keeps some tens of tokens: exp(-exp(A_log) * softplus(a + dt_bias)) near 0.9 in most channels.
DECAY = {r"A_log": (-1.5, 0.5), r"dt_bias": (-0.5, 0.5), r"conv(1d|\.conv)\.weight": (0.0, 0.5)}
# The same where the gate is exp(lower bound * sigmoid(exp(A_log) * (a + dt_bias))).
BOUNDED = {r"A_log": (0.0, 0.3), r"dt_bias": (-3.0, 0.5), r"conv(1d|\.conv)\.weight": (0.0, 0.5)}
YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.8,
}


def _config(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts, fields):
        config.update(part)
    return config


KIMI_LINEAR = {
    "head_dim": 32,
    "mla_use_nope": True,
    "linear_attn_config": {
        "kda_layers": [1, 2, 4],
        "full_attn_layers": [3],
        "num_heads": 2,
        "head_dim": 32,
        "short_conv_kernel_size": 4,
    },
    "model_max_length": 256,
    "num_experts_per_token": 3,
}
BAILING = {
    "layer_group_size": 2,
    "head_dim": 32,
    "q_lora_rank": 64,
    "num_experts_per_tok": 3,
    "moe_shared_expert_intermediate_size": 96,
    "n_group": 4,
    "topk_group": 2,
    "max_position_embeddings": 256,
}
KIMI_K3 = {
    "linear_attn_config": {
        "kda_layers": [1, 2, 4],
        "full_attn_layers": [3],
        "num_heads": 2,
        "head_dim": 32,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "use_full_rank_gate": True,
    },
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 6.0,
    "attn_res_block_size": 3,
    "q_lora_rank": 64,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "num_experts_per_token": 3,
    "routed_expert_hidden_size": 96,
    "latent_moe_use_norm": True,
    "max_position_embeddings": 256,
}

RECIPES: dict[str, Recipe] = {
    "kimi_linear": Recipe(config=_config("kimi_linear", KIMI_LINEAR), hub=LAYOUTS + "kimi_linear", spread=DECAY),
    "kimi_linear-softmax": Recipe(
        config=_config(
            "kimi_linear",
            KIMI_LINEAR,
            linear_attn_config={"kda_layers": [2, 3], "num_heads": 3, "head_dim": 16, "short_conv_kernel_size": 3},
            tie_word_embeddings=True,
            moe_router_activation_func="softmax",
            moe_renormalize=False,
            moe_layer_freq=2,
            first_k_dense_replace=0,
            num_shared_experts=0,
            num_expert_group=4,
            topk_group=2,
            qk_nope_head_dim=None,
            qk_rope_head_dim=None,
            v_head_dim=None,
        ),
        hub=LAYOUTS + "kimi_linear",
        spread={**DECAY, r"embed_tokens": (0.0, 0.5)},
    ),
    "bailing_moe_v3": Recipe(config=_config("bailing_moe_v3", BAILING), hub=LAYOUTS + "bailing_moe_v3", spread=BOUNDED),
    "bailing_moe_v3-hybrid": Recipe(
        config=_config(
            "bailing_hybrid",
            BAILING,
            architectures=["BailingMoeV3ForCausalLM"],
            layer_group_size=3,
            q_lora_rank=None,
            rope_scaling=YARN,
            n_group=1,
            topk_group=1,
            tie_word_embeddings=True,
            first_k_dense_replace=2,
            num_shared_experts=2,
            short_conv_kernel_size=3,
            kda_lower_bound=-4.0,
        ),
        hub=LAYOUTS + "bailing_moe_v3",
        spread={**BOUNDED, r"word_embeddings": (0.0, 0.5)},
    ),
    "kimi_k3": Recipe(
        config={
            "model_type": "kimi_k3",
            "text_config": _config("kimi_linear", KIMI_K3),
            "tie_word_embeddings": False,
        },
        hub=LAYOUTS + "kimi_k3",
        spread=BOUNDED,
    ),
    "kimi_k3-flat": Recipe(
        config=_config(
            "kimi_k3",
            KIMI_K3,
            linear_attn_config={"kda_layers": [1, 3], "num_heads": 2, "head_dim": 32, "short_conv_kernel_size": 3},
            activation_situ_beta=None,
            activation_situ_linear_beta=None,
            attn_res_block_size=None,
            q_lora_rank=None,
            mla_use_output_gate=False,
            moe_renormalize=False,
            num_expert_group=4,
            topk_group=2,
            routed_expert_hidden_size=32,
            latent_moe_use_norm=False,
            moe_layer_freq=2,
            first_k_dense_replace=0,
            num_shared_experts=0,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "kimi_k3",
        spread={**DECAY, r"embed_tokens": (0.0, 0.5)},
    ),
}
