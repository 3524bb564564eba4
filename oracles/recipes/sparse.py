"""Tiny configurations: sparse attention with an indexer, that selects and that has room for every key."""

from __future__ import annotations

from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.sparse:"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}

M3: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "dense_intermediate_size": 128,
    "shared_intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "head_dim": 32,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "moe_layer_freq": [0, 1, 1],
    "sparse_attention_config": {
        "use_sparse_attention": True,
        "sparse_index_dim": 32,
        "sparse_num_index_heads": 2,
        "sparse_topk_blocks": 3,
        "sparse_block_size": 4,
        "sparse_score_type": "max",
        "sparse_init_block": 0,
        "sparse_local_block": 1,
        "sparse_attention_freq": [0, 1, 1],
    },
}


V32: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 12,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 1.5,
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
GLM_DSA: dict[str, Any] = {
    **{key: value for key, value in V32.items() if key != "rope_theta"},
    "model_type": "glm_moe_dsa",
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "moe_layer_freq": 1,
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}


V41: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "head_dim": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "o_groups": 2,
    "o_lora_rank": 32,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "swiglu_limit": 1.0,
    "rms_norm_eps": 1e-6,
    "sliding_window": 8,
    "compress_ratios": [0, 2, 2, 2, 2],
    "kv_source_layer_ids": [1, 3],
    "index_source_layer_ids": [1, 2, 3],
    "candidate_source_layer_id": 1,
    "candidate_topk_blocks": 3,
    "candidate_block_size": 4,
    "index_n_heads": 2,
    "index_head_dim": 32,
    "index_topk": 4,
    "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
    "max_position_embeddings": 256,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 5,
}


# The streams' own maps: gates away from 0 and 1.
HYPER = {r"_hc\.scale$": (1.0, 0.2), r"_hc\.fn$": (0.0, 0.1)}


def _m3(**changes: Any) -> dict[str, Any]:
    return {"model_type": "minimax_m3_vl", "text_config": {**M3, **changes}}


RECIPES: dict[str, Recipe] = {
    "deepseek_v41": Recipe(
        config={"model_type": "deepseek_v41", **V41}, window=8, hub=LAYOUTS + "deepseek_v41", spread=HYPER
    ),
    # Groups of one token, index keys without candidates, dimensions that small floats' blocks do not divide.
    "deepseek_v41-singles": Recipe(
        config={
            "model_type": "deepseek_v41_text",
            **V41,
            "num_hidden_layers": 3,
            "head_dim": 40,
            "qk_rope_head_dim": 8,
            "o_groups": 1,
            "compress_ratios": [1, 1],
            "kv_source_layer_ids": [0],
            "index_source_layer_ids": [0, 1],
            "candidate_source_layer_id": -1,
            "index_head_dim": 24,
            "scoring_func": "softmax",
            "gate_temp": 0.7,
            "norm_topk_prob": False,
            "swiglu_limit": 0.0,
            "rope_scaling": None,
            "hc_mult": 2,
        },
        spread=HYPER,
        quants=("q4g32", "mxfp4", "mxfp8", "nvfp4"),
    ),
    # A wrapper's config; two sizes of groups, a layer that makes groups and leaves the picking to another one.
    "deepseek_v41-wrapped": Recipe(
        config={
            "model_type": "deepseek_v41",
            "text_config": {
                **V41,
                "compress_ratios": [4, 0, 4, 3, 3],
                "kv_source_layer_ids": [0, 2, 3],
                "index_source_layer_ids": [0, 3],
                "candidate_source_layer_id": 3,
                "scoring_func": "sigmoid",
                "index_topk": 64,
            },
        },
        hub=LAYOUTS + "deepseek_v41",
        spread=HYPER,
    ),
    "deepseek_v32": Recipe(config={"model_type": "deepseek_v32", **V32}, hub=LAYOUTS + "deepseek_v32"),
    # Every key has room until the last tokens; a dense layer between mixtures.
    "deepseek_v32-groups": Recipe(
        config={
            "model_type": "deepseek_v32",
            **V32,
            "index_n_heads": 3,
            "index_head_dim": 16,
            "index_topk": 44,
            "indexer_rope_interleave": True,
            "attention_bias": True,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "n_shared_experts": None,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 2,
            "rope_scaling": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.6},
        },
        hub=LAYOUTS + "deepseek_v32",
    ),
    "glm_moe_dsa": Recipe(config=GLM_DSA, hub=LAYOUTS + "deepseek_v32"),
    "minimax_m3_vl": Recipe(config=_m3(), hub=LAYOUTS + "minimax_m3_vl", norm_mean=0.0),
    # As transformers 5 writes it: flat names, words for layers; one index head, small rope of the indexer.
    "minimax_m3_vl-flat": Recipe(
        config=_m3(
            sparse_attention_config=None,
            moe_layer_freq=None,
            mlp_layer_types=["sparse", "dense", "sparse"],
            layer_types=["sparse_attention", "full_attention", "sparse_attention"],
            index_n_heads=1,
            index_head_dim=16,
            index_block_size=8,
            index_topk_blocks=2,
            index_local_blocks=0,
            rope_parameters={**YARN, "rope_theta": 5000.0, "partial_rotary_factor": 0.75},
            use_gemma_norm=False,
            use_qk_norm=False,
            swiglu_alpha=1.25,
            swiglu_limit=0.75,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "minimax_m3_vl_folded",
        spread={r"embed_tokens\.weight$": (0.0, 0.1)},
    ),
    # Every layer has an indexer, whose blocks all fit until the prompt is longer than 36.
    "minimax_m3_vl-wide": Recipe(
        config=_m3(
            sparse_attention_config=None,
            moe_layer_freq=None,
            num_hidden_layers=2,
            index_n_heads=4,
            index_head_dim=32,
            index_block_size=12,
            index_topk_blocks=3,
            index_local_blocks=2,
            rotary_dim=32,
        ),
        norm_mean=0.0,
    ),
    "minimax_m3_vl-full": Recipe(
        config=_m3(sparse_attention_config=None, num_hidden_layers=2, moe_layer_freq=[1, 0]), norm_mean=0.0
    ),
}
