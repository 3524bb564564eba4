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


def _tower(model_type: str, text: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "text_config": _config(text, *parts, **fields)}


# Without the words of yarn that raise an attention's scale.
PLAIN_YARN = {key: value for key, value in YARN.items() if not key.startswith("mscale")}
MINICPM3: dict[str, Any] = {
    "dim_model_base": 24,
    "scale_depth": 1.4,
    "scale_emb": 3.0,
    "rope_scaling": {
        "type": "longrope",
        "original_max_position_embeddings": 32,
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)],
    },
}
GROWING = {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16, "rope_theta": 5000.0}
LONGCAT = {
    "attention_method": "MLA",
    "attention_bias": False,
    "num_layers": 2,
    "ffn_hidden_size": 128,
    "expert_ffn_hidden_size": 64,
    "moe_topk": 3,
    "n_routed_experts": 6,
    "zero_expert_num": 4,
    "zero_expert_type": "identity",
    "routed_scaling_factor": 2.0,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
}

RECIPES: dict[str, Recipe] = {
    "deepseek_v2": Recipe(
        config=_config("deepseek_v2", SPARSE, rope_scaling=YARN, norm_topk_prob=False, topk_method="greedy"),
        hub=LAYOUTS + "experts",
    ),
    "deepseek_v2-groups": Recipe(
        config=_config(
            "deepseek_v2",
            SPARSE,
            GROUPS,
            q_lora_rank=None,
            attention_bias=True,
            moe_layer_freq=2,
            rope_scaling=PLAIN_YARN,
            topk_method="group_limited_greedy",
        ),
        hub=LAYOUTS + "experts",
    ),
    "deepseek_v3": Recipe(config=_config("deepseek_v3", SPARSE, rope_scaling=YARN), hub=LAYOUTS + "deepseek_v3"),
    "deepseek_v3-plain-queries": Recipe(
        config=_config("deepseek_v3", SPARSE, GROUPS, q_lora_rank=None, attention_bias=True, moe_layer_freq=2),
        hub=LAYOUTS + "deepseek_v3",
    ),
    "glm4_moe_lite": Recipe(
        config=_config("glm4_moe_lite", SPARSE, GROUPS, rope_scaling=YARN, attention_bias=True, norm_topk_prob=True),
        hub=LAYOUTS + "glm4_moe_lite",
    ),
    "kimi_k25": Recipe(config=_tower("kimi_k25", "kimi_k2", SPARSE, rope_scaling=YARN), hub=LAYOUTS + "kimi_k25"),
    "kimi_vl": Recipe(config=_tower("kimi_vl", "deepseek_v3", SPARSE, q_lora_rank=None), hub=LAYOUTS + "kimi_vl"),
    "longcat_flash": Recipe(config=_config("longcat_flash", LONGCAT, rope_scaling=YARN), hub=LAYOUTS + "longcat_flash"),
    "longcat_flash_ngram": Recipe(
        config=_config(
            "longcat_flash_ngram",
            LONGCAT,
            hidden_size=128,
            kv_lora_rank=32,
            q_lora_rank=48,
            attention_bias=True,
            norm_topk_prob=True,
            router_bias=True,
            ngram_vocab_size_ratio=3,
            emb_neighbor_num=3,
            emb_split_num=2,
        ),
        hub=LAYOUTS + "longcat_flash_ngram",
    ),
    "minicpm3": Recipe(config=_config("minicpm3", MINICPM3)),
    "minicpm3-tied": Recipe(
        config=_config("minicpm3", MINICPM3, attention_bias=True, tie_word_embeddings=True, rope_scaling={}),
    ),
    "mistral3-latent": Recipe(
        config=_tower("mistral3", "mistral4", SPARSE, rope_parameters={**YARN, **GROWING}),
        hub=LAYOUTS + "mistral3",
    ),
    "mistral4": Recipe(
        config=_config("mistral4", SPARSE, rope_parameters={**YARN, **GROWING}), hub=LAYOUTS + "mistral4"
    ),
    "mistral4-tied": Recipe(
        config=_config(
            "mistral4",
            SPARSE,
            GROUPS,
            rope_parameters={"type": "default", **GROWING},
            q_lora_rank=None,
            attention_bias=True,
            rope_interleave=False,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "mistral4_one_by_one",
    ),
    "youtu_llm": Recipe(config=_config("youtu_llm")),
    "youtu_llm-untied": Recipe(
        config=_config(
            "youtu_llm",
            q_lora_rank=None,
            attention_bias=True,
            mlp_bias=True,
            rope_scaling=PLAIN_YARN,
            rope_traditional=False,
            tie_word_embeddings=False,
        ),
    ),
}
