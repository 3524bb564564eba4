"""Tiny configurations: latent attention (MLA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.latent:"
YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.8,
    "mscale_all_dim": 0.6,
}
BASE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
}
SPARSE = {
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
GROUPS = {"n_group": 4, "topk_group": 2, "norm_topk_prob": False, "n_shared_experts": None}


def _config(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts, fields):
        config.update(part)
    return config


RECIPES: dict[str, Recipe] = {
    "deepseek_v3": Recipe(config=_config("deepseek_v3", SPARSE, rope_scaling=YARN), hub=LAYOUTS + "deepseek_v3"),
    "deepseek_v3-plain-queries": Recipe(
        config=_config("deepseek_v3", SPARSE, GROUPS, q_lora_rank=None, attention_bias=True, moe_layer_freq=2),
        hub=LAYOUTS + "deepseek_v3",
    ),
}
