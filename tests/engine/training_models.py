"""Tiny configs, one for each kind of mixer that is trained."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

VOCABULARY = 32
BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": 64,
}
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {**BASE, "model_type": "llama"},
    "sliding": {
        **BASE,
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": 8,
        "sliding_window": 4,
        "sliding_window_pattern": 2,
        "rope_local_base_freq": 10000.0,
    },
    "experts": {**BASE, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "latent": {
        **BASE,
        "model_type": "deepseek_v3",
        "kv_lora_rank": 8,
        "q_lora_rank": None,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": None,
    },
    "delta": {
        **BASE,
        "model_type": "qwen3_next",
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 2,
        "partial_rotary_factor": 0.5,
        "num_experts": 0,
    },
    "mamba2": {
        **BASE,
        "model_type": "mamba2",
        "num_heads": 4,
        "state_size": 8,
        "n_groups": 1,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "hidden_act": "silu",
        "layer_norm_epsilon": 1e-5,
        "time_step_limit": [0.0, 100.0],
    },
}


def drawn_rows(rows: int, length: int, seed: int = 0) -> mx.array:
    """Token ids [rows, length]."""
    return mx.random.randint(0, VOCABULARY, (rows, length), key=mx.random.key(seed))
