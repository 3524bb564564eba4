"""Tiny configurations: mixtures of experts with sliding windows, attention sinks, gates and the odder routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

SLIDING, FULL = "sliding_attention", "full_attention"
LAYOUTS = "oracles.layouts.moe2:"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"type": "linear", "factor": 2.0}
BASE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
}
HEAD = {"head_dim": 32}


def _config(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts, fields):
        config.update(part)
    return config


PHIMOE_ROPE = {
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)],
        "short_mscale": 1.1,
        "long_mscale": 1.25,
    },
    "original_max_position_embeddings": 32,
}
PHIMOE = {"num_local_experts": 8, "num_experts_per_tok": 2, "router_jitter_noise": 0.4}
PHIXTRAL = {
    "num_vocab": 100,
    "model_dim": 64,
    "num_heads": 4,
    "num_layers": 2,
    "rotary_dim": 8,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
}

QWEN2_MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
}

QWEN3_MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}

SOLAR_OPEN = {
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "routed_scaling_factor": 1.5,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "partial_rotary_factor": 1.0,
}

AFMOE = {
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "sliding_window": 8,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 2,
    "num_dense_layers": 1,
}

EXAONE_MOE = {
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING],
    "is_moe_layer": [False, True, True, True],
    "sliding_window": 8,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 1,
}

GPT_OSS = {
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "sliding_window": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "rope_theta": 150000,
    "rope_scaling": YARN,
}

LAGUNA = {
    "num_hidden_layers": 4,
    "layer_types": [FULL, SLIDING, SLIDING, FULL],
    "num_attention_heads_per_layer": [4, 6, 6, 4],
    "sliding_window": 8,
    "rope_parameters": {
        FULL: {**YARN, "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    },
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
    "moe_routed_scaling_factor": 2.5,
}

MELLUM = {
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "sliding_window": 8,
    "rope_parameters": {FULL: {**YARN, "rope_theta": 500000.0}, SLIDING: {"rope_theta": 10000.0}},
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}

MIMO_V2_FLASH: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hybrid_layer_pattern": [0, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1],
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
    "sliding_window_size": 8,
    "moe_intermediate_size": 64,
    "n_shared_experts": None,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": None,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "layernorm_epsilon": 1e-5,
    "swa_rope_theta": 500.0,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 4,
    "head_dim": 48,
    "v_head_dim": 32,
    "swa_head_dim": 48,
    "swa_v_head_dim": 32,
    "partial_rotary_factor": 0.334,
}

STEP3P5 = {
    "num_hidden_layers": 4,
    "num_attention_groups": 2,
    "layer_types": [FULL, SLIDING, SLIDING, FULL],
    "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 3},
    "sliding_window": 8,
    "rope_theta": [500000.0, 10000.0, 10000.0, 500000.0],
    "rope_scaling": LLAMA3,
    "yarn_only_types": [FULL],
    "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
    "moe_num_experts": 8,
    "moe_top_k": 3,
    "moe_intermediate_size": 64,
    "share_expert_dim": 96,
    "moe_layers_enum": "1,2,3",
    "swiglu_limits": [0.0, 0.0, 1.5, 0.0],
    "swiglu_limits_shared": [0.75, 0.0, 0.0, 2.0],
}
# (w - 1) + 1 is exact for w in [0.5, 2] only, and the hub layout stores w - 1.
NEAR_ONE = {r"norm\.weight$": (1.0, 0.1)}

MUSE_SPARK = {
    "model_type": "muse_spark",
    "text_config": {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 3,
        "vocab_size": 100,
        "rms_norm_eps": 1e-5,
        "post_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0},
        "layer_rope_theta": [10000.0, 10000.0, 0.0],
        "layer_types": [SLIDING, SLIDING, FULL],
        "sliding_window": 8,
        "final_logit_softcapping": 20.0,
        "output_multiplier": 0.5,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "moe_hidden_size": 64,
        "moe_intermediate_size": 64,
    },
}

RECIPES: dict[str, Recipe] = {
    "afmoe": Recipe(config=_config("afmoe", HEAD, AFMOE), window=8, hub=LAYOUTS + "afmoe"),
    "afmoe-softmax-groups": Recipe(
        config=_config(
            "afmoe",
            HEAD,
            AFMOE,
            {"layer_types": [SLIDING, SLIDING, SLIDING, FULL], "rope_scaling": LINEAR},
            score_func="softmax",
            n_group=4,
            topk_group=2,
            num_shared_experts=0,
            route_norm=False,
            mup_enabled=False,
            tie_word_embeddings=True,
        ),
        window=8,
        hub=LAYOUTS + "afmoe",
    ),
    "afmoe-full": Recipe(
        config=_config("afmoe", HEAD, AFMOE, layer_types=[FULL] * 4, num_experts_per_tok=1), hub=LAYOUTS + "afmoe"
    ),
    "exaone_moe": Recipe(
        config=_config("exaone_moe", HEAD, EXAONE_MOE, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
        window=8,
        hub=LAYOUTS + "exaone_moe",
    ),
    "exaone_moe-full": Recipe(
        config=_config(
            "exaone_moe",
            HEAD,
            EXAONE_MOE,
            layer_types=[FULL] * 4,
            rope_scaling=LLAMA3,
            num_shared_experts=0,
            n_group=4,
            topk_group=2,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "exaone_moe",
    ),
    "exaone_moe-sliding": Recipe(
        config=_config(
            "exaone_moe", HEAD, EXAONE_MOE, layer_types=[SLIDING] * 4, norm_topk_prob=False, num_shared_experts=2
        ),
        window=8,
        hub=LAYOUTS + "exaone_moe",
    ),
    "gpt_oss": Recipe(config=_config("gpt_oss", HEAD, GPT_OSS), window=8, hub=LAYOUTS + "gpt_oss"),
    "gpt_oss-typed": Recipe(
        config=_config(
            "gpt_oss", HEAD, GPT_OSS, layer_types=[FULL, FULL, SLIDING, SLIDING], rope_scaling=None, head_dim=16
        ),
        window=8,
        hub=LAYOUTS + "gpt_oss",
    ),
    "laguna": Recipe(config=_config("laguna", HEAD, LAGUNA), window=8, hub=LAYOUTS + "laguna"),
    "laguna-sqrtsoftplus": Recipe(
        config=_config(
            "laguna",
            HEAD,
            LAGUNA,
            num_attention_heads_per_layer=None,
            mlp_layer_types=["sparse", "dense", "sparse", "sparse"],
            gating=False,
            qkv_bias=True,
            attention_bias=True,
            moe_router_score_func="sqrtsoftplus",
            moe_router_logit_softcapping=1.5,
            partial_rotary_factor=0.75,
            tie_word_embeddings=True,
        ),
        window=8,
        hub=LAYOUTS + "laguna_prefixed",
    ),
    "laguna-full": Recipe(
        config=_config("laguna", HEAD, LAGUNA, layer_types=None, rope_parameters=None), hub=LAYOUTS + "laguna"
    ),
    "mellum": Recipe(config=_config("mellum", HEAD, MELLUM), window=8, hub=LAYOUTS + "stacked"),
    "mellum-tied": Recipe(
        config=_config(
            "mellum",
            HEAD,
            MELLUM,
            layer_types=[FULL] * 4,
            rope_parameters={FULL: {"rope_theta": 10000.0}},
            norm_topk_prob=False,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "stacked_tied",
        spread={r"embed_tokens\.weight$": (0.0, 0.1)},  # wider rows repeat themselves
    ),
    "mimo_v2_flash": Recipe(config=_config("mimo_v2_flash", MIMO_V2_FLASH), window=8, hub=LAYOUTS + "mimo_v2_flash"),
    "mimo_v2_flash-sinks": Recipe(
        config=_config(
            "mimo_v2_flash",
            MIMO_V2_FLASH,
            add_full_attention_sink_bias=True,
            add_swa_attention_sink_bias=False,
            attention_value_scale=0.707,
            n_shared_experts=1,
            routed_scaling_factor=1.5,
            norm_topk_prob=False,
            n_group=4,
            topk_group=2,
        ),
        window=8,
        hub=LAYOUTS + "mimo_v2_flash",
    ),
    "muse_spark": Recipe(config=MUSE_SPARK, window=8),
    "phi-msft": Recipe(config={"model_type": "phi-msft", **PHIXTRAL}, hub=LAYOUTS + "phixtral"),
    "phimoe": Recipe(config=_config("phimoe", PHIMOE, PHIMOE_ROPE), hub=LAYOUTS + "phimoe"),
    "phimoe-plain": Recipe(
        config=_config("phimoe", PHIMOE, rope_scaling=None, num_experts_per_tok=3, router_jitter_noise=0.01),
        hub=LAYOUTS + "phimoe",
    ),
    "phixtral": Recipe(
        config={"model_type": "phixtral", **PHIXTRAL, "rotary_dim": 16, "num_experts_per_tok": 3},
        hub=LAYOUTS + "phixtral",
    ),
    "qwen2_moe": Recipe(config=_config("qwen2_moe", QWEN2_MOE), hub=LAYOUTS + "stacked"),
    "qwen2_moe-traditional": Recipe(
        config=_config("qwen2_moe", QWEN2_MOE, num_key_value_heads=None, rope_traditional=True),
        hub=LAYOUTS + "stacked",
    ),
    "qwen3_moe": Recipe(config=_config("qwen3_moe", HEAD, QWEN3_MOE), hub=LAYOUTS + "stacked"),
    "qwen3_moe-sparse-step": Recipe(
        config=_config(
            "qwen3_moe",
            HEAD,
            QWEN3_MOE,
            num_hidden_layers=4,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
            norm_topk_prob=False,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "stacked_tied",
    ),
    "solar_open": Recipe(config=_config("solar_open", HEAD, SOLAR_OPEN), hub=LAYOUTS + "solar_open"),
    "solar_open-groups": Recipe(
        config=_config(
            "solar_open",
            HEAD,
            SOLAR_OPEN,
            attention_bias=True,
            use_qk_norm=True,
            n_group=4,
            topk_group=2,
            partial_rotary_factor=0.5,
            norm_topk_prob=False,
            n_shared_experts=None,
        ),
        hub=LAYOUTS + "solar_open",
    ),
    "step3p5": Recipe(config=_config("step3p5", HEAD, STEP3P5), window=8, hub=LAYOUTS + "step3p5", spread=NEAR_ONE),
    "step3p5-alternating": Recipe(
        config=_config(
            "step3p5",
            HEAD,
            STEP3P5,
            layer_types=None,
            attention_other_setting=None,
            rope_theta=10000.0,
            yarn_only_types=None,
            partial_rotary_factors=[0.5],
            use_head_wise_attn_gate=False,
            moe_layers_enum=None,
            norm_expert_weight=False,
            swiglu_limits=None,
            swiglu_limits_shared=None,
        ),
        window=8,
        hub=LAYOUTS + "step3p5",
        spread=NEAR_ONE,
    ),
}
