"""Tiny configurations: short convolutions, linear attention and other recurrences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.conv:"
CONV, FULL = "conv", "full_attention"
BASE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
}


def _config(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts, fields):
        config.update(part)
    return config


LFM2 = {
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_multiple_of": 64,
    "block_ffn_dim_multiplier": 0.9,
    "block_auto_adjust_ff_dim": True,
    "block_ff_dim": 192,
    "rope_theta": 10000.0,
    "full_attn_idxs": [1],
}
LFM2_PLAIN = {
    "conv_bias": True,
    "conv_L_cache": 4,
    "block_auto_adjust_ff_dim": False,
    "block_ff_dim": None,
    "full_attn_idxs": None,
    "layer_types": [FULL, CONV, FULL],
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
}
LFM2_MOE = {
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "rope_theta": 10000.0,
    "full_attn_idxs": [2],
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "use_expert_bias": True,
    "num_dense_layers": 1,
}
RECURRENT_GEMMA = {
    "attention_bias": False,
    "conv1d_width": 4,
    "logits_soft_cap": 30.0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_window_size": 8,
    "block_types": ["recurrent", "recurrent", "attention"],
}
BAICHUAN_M1 = {
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "sliding_window": 8,
    "sliding_window_layers": [1],
    "conv_window": 2,
    "num_swa_attention_heads": 4,
    "num_swa_key_value_heads": 2,
}
RWKV7 = {
    "vocab_size": 100,
    "hidden_size": 128,
    "intermediate_size": 256,
    "norm_eps": 1e-5,
    "head_dim": 32,
    "num_hidden_layers": 2,
    "a_low_rank_dim": 64,
    "v_low_rank_dim": 64,
    "gate_low_rank_dim": 128,
    "decay_low_rank_dim": 64,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
BAILING = {
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_shared_experts": 1,
    "num_experts_per_tok": 3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "first_k_dense_replace": 1,
    "layer_group_size": 3,
    "group_norm_size": 2,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}
GROUPED = {
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "moe_shared_expert_intermediate_size": 96,
}
BAILING_HYBRID = {
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "head_dim": 32,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "q_lora_rank": 64,
}
RECIPES: dict[str, Recipe] = {
    "lfm2": Recipe(config=_config("lfm2", LFM2), hub=LAYOUTS + "lfm2"),
    "lfm2-plain": Recipe(config=_config("lfm2", LFM2, LFM2_PLAIN), hub=LAYOUTS + "lfm2"),
    "lfm2-vl": Recipe(
        config={"model_type": "lfm2-vl", "text_config": _config("lfm2", LFM2, num_hidden_layers=2)},
        hub=LAYOUTS + "lfm2_vl",
    ),
    "lfm2_moe": Recipe(config=_config("lfm2_moe", LFM2_MOE), hub=LAYOUTS + "lfm2_moe"),
    "lfm2_moe-plain": Recipe(
        config=_config(
            "lfm2_moe",
            LFM2_MOE,
            conv_bias=True,
            full_attn_idxs=None,
            layer_types=[FULL, CONV, CONV],
            use_expert_bias=False,
            norm_topk_prob=False,
            routed_scaling_factor=1.5,
            num_dense_layers=0,
        ),
        hub=LAYOUTS + "lfm2_moe",
    ),
    "recurrent_gemma": Recipe(
        config=_config("recurrent_gemma", RECURRENT_GEMMA), window=8, hub=LAYOUTS + "lfm2", norm_mean=0.0
    ),
    "recurrent_gemma-tied": Recipe(
        config=_config(
            "recurrent_gemma",
            RECURRENT_GEMMA,
            block_types=None,
            _block_types=["attention", "recurrent"],
            logits_soft_cap=0.0,
            embeddings_scale_by_sqrt_dim=False,
        ),
        window=8,
        hub=LAYOUTS + "lfm2",
        norm_mean=0.0,
        without=r"^lm_head\.",
    ),
    "baichuan_m1": Recipe(config=_config("baichuan_m1", BAICHUAN_M1), window=8),
    "baichuan_m1-full": Recipe(
        config=_config("baichuan_m1", BAICHUAN_M1, num_hidden_layers=2, sliding_window_layers=[])
    ),
    "rwkv7": Recipe(config={"model_type": "rwkv7", **RWKV7}, hub=LAYOUTS + "rwkv7"),
    "rwkv7-tied": Recipe(
        config={"model_type": "rwkv7", **RWKV7, "tie_word_embeddings": True, "head_dim": 64},
        hub=LAYOUTS + "rwkv7",
    ),
    "bailing_moe_linear": Recipe(config=_config("bailing_moe_linear", BAILING), hub="oracles.layouts.moe1:bailing"),
    "bailing_moe_linear-grouped": Recipe(
        config=_config(
            "bailing_moe_linear",
            BAILING,
            GROUPED,
            num_attention_heads=3,
            num_key_value_heads=1,
            hidden_size=192,
            head_dim=32,
            use_qk_norm=True,
            use_qkv_bias=True,
            partial_rotary_factor=0.5,
            rope_scaling=YARN,
            rope_traditional=True,
            num_shared_experts=2,
            tie_word_embeddings=True,
        ),
        hub="oracles.layouts.moe1:bailing",
    ),
    # Dense, so that 16 bits run unpacked. The head is divided at every load, a packed one too.
    "bailing_moe_linear-dense": Recipe(
        config=_config(
            "bailing_moe_linear", BAILING, num_hidden_layers=3, num_experts=None, use_bias=True, norm_head=True
        ),
        quants=(),
    ),
    "bailing_hybrid": Recipe(config=_config("bailing_hybrid", BAILING, BAILING_HYBRID), hub=LAYOUTS + "bailing_hybrid"),
    "bailing_hybrid-plain": Recipe(
        config=_config(
            "bailing_hybrid",
            BAILING,
            BAILING_HYBRID,
            num_hidden_layers=3,
            n_group=1,
            topk_group=1,
            q_lora_rank=None,
            score_function="softmax",
            norm_topk_prob=False,
            moe_router_enable_expert_bias=False,
            moe_shared_expert_intermediate_size=96,
            num_shared_experts=2,
            rope_interleave=False,
            rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
            use_qk_norm=False,
            use_qkv_bias=True,
            tie_word_embeddings=True,
        ),
        hub=LAYOUTS + "bailing_hybrid",
    ),
    # Dense, so that 16 bits run unpacked. No window, but a prompt of two of its blocks of 128.
    "bailing_hybrid-dense": Recipe(
        config=_config(
            "bailing_hybrid", BAILING, BAILING_HYBRID, num_hidden_layers=2, layer_group_size=2, first_k_dense_replace=2
        ),
        window=33,
        hub=LAYOUTS + "bailing_hybrid",
    ),
}
