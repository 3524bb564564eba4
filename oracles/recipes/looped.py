"""Recipes of the looped and KV-reusing decoders, the gemma3 line, and the dense ones beside them.

Epsilons are far from every default, so that a default in the place of a config value shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

_LLAMA_LIKE: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 3e-4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
_YARN = {
    "rope_type": "telechat3-yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 8,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32, "high_freq_factor": 4.0}
_BIASES = {"attention_bias": True, "mlp_bias": True}
_LINEAR = {"type": "linear", "factor": 4.0}
_YARN_PLAIN = {**_YARN, "rope_type": "yarn"}
_NTK = {"type": "dynamic", "factor": 2.0}


def _llama_like(model_type: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": model_type, **_LLAMA_LIKE, **changes}


_STABLELM = {
    "model_type": "stablelm",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 128,
    "rope_theta": 5000.0,
    "use_qkv_bias": True,
    "partial_rotary_factor": 0.25,
    "layer_norm_eps": 3e-4,
}
_STARCODER2 = {
    "model_type": "starcoder2",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "norm_epsilon": 3e-4,
    "vocab_size": 100,
    "rope_theta": 7000.0,
}
_TALKIE = {
    "model_type": "talkie",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 32,
    "intermediate_size": 128,
    "vocab_size": 100,
    "rope_theta": 9000.0,
    "rms_norm_eps": 3e-4,
}
_AFM7 = {
    "model_type": "afm7",
    "vocab_size": 100,
    "hidden_dim": 64,
    "num_layers": 4,
    "num_kv_reuse_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "hidden_dim_scale_factor": 2.0,
    "rope_theta": 6000.0,
    "rms_norm_eps": 3e-4,
}
_GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 3e-4,
    "vocab_size": 100,
    "num_key_value_heads": 1,
    "rope_theta": 50000.0,
    "rope_local_base_freq": 5000.0,
    "query_pre_attn_scalar": 24,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "max_position_embeddings": 512,
}
_GEMMA3N = {
    "model_type": "gemma3n_text",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "head_dim": 16,
    "rms_norm_eps": 3e-4,
    "vocab_size": 100,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 90,
    "sliding_window": 8,
    "max_position_embeddings": 512,
    "rope_local_base_freq": 5000.0,
    "rope_theta": 50000.0,
    "final_logit_softcapping": 6.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": [0.9, 0.6, 0.0, 0.0, 0.95, 0.0],
    "hidden_size_per_layer_input": 32,
    "altup_num_inputs": 4,
    "altup_coef_clip": 0.25,
    "altup_correct_scale": True,
    "altup_active_idx": 0,
    "laurel_rank": 32,
}
_GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "head_dim": 16,
    "global_head_dim": 32,
    "rms_norm_eps": 3e-4,
    "vocab_size": 100,
    "vocab_size_per_layer_input": 100,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 32,
    "sliding_window": 8,
    "max_position_embeddings": 512,
    "final_logit_softcapping": 6.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 50000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
    },
}
_GEMMA4_WITHOUT_SHARING = {**_GEMMA4, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}
_IQUEST = _llama_like("iquestloopcoder", head_dim=32, num_attention_heads=4, loop_window_size=8, rope_theta=9000.0)


RECIPES: dict[str, Recipe] = {
    "afm7": Recipe(config=_AFM7, spread={"quant_(key|value)_scale": (0.03, 0.003)}),
    "afm7-no-reuse": Recipe(
        config={**_AFM7, "num_layers": 2, "num_kv_reuse_layers": 0}, spread={"quant_(key|value)_scale": (0.03, 0.003)}
    ),
    "bitnet": Recipe(config=_llama_like("bitnet", rope_theta=9000.0)),
    "gemma3_text": Recipe(config=_GEMMA3, norm_mean=0.0, window=8),
    "gemma3_text-full": Recipe(
        config={**_GEMMA3, "num_hidden_layers": 2, "sliding_window_pattern": 1, "rope_scaling": _LINEAR}, norm_mean=0.0
    ),
    "gemma3_text-tied": Recipe(
        config={**_GEMMA3, "num_key_value_heads": 2, "num_hidden_layers": 3},
        norm_mean=0.0,
        window=8,
        without=r"^lm_head\.",
        spread={r"embed_tokens\.weight": (0.0, 0.02)},
    ),
    "gemma3n": Recipe(
        config={"model_type": "gemma3n", "text_config": _GEMMA3N}, window=8, hub="oracles.layouts.looped:gemma3n"
    ),
    "gemma3n-plain": Recipe(
        spread={r"embed_tokens\.weight": (0.0, 0.05)},
        config={
            "model_type": "gemma3n",
            "text_config": {
                **_GEMMA3N,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                "intermediate_size": [128, 64, 192],
                "num_kv_shared_layers": 0,
                "activation_sparsity_pattern": None,
                "altup_coef_clip": None,
                "altup_correct_scale": False,
                "altup_active_idx": 1,
                "altup_num_inputs": 3,
                "final_logit_softcapping": None,
            },
        },
        window=8,
        hub="oracles.layouts.looped:gemma3n",
    ),
    "gemma4_text": Recipe(config=_GEMMA4, window=8, hub="oracles.layouts.looped:gemma4_text"),
    "gemma4_text-defaults": Recipe(
        config={
            k: v
            for k, v in {**_GEMMA4, "use_double_wide_mlp": False, "sliding_window_pattern": 2}.items()
            if k not in ("layer_types", "rope_parameters")
        },
        window=8,
        hub="oracles.layouts.looped:gemma4_text",
    ),
    "gemma4_text-k-eq-v": Recipe(
        config={
            **_GEMMA4_WITHOUT_SHARING,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "tie_word_embeddings": False,
            "final_logit_softcapping": None,
        },
        window=8,
        hub="oracles.layouts.looped:gemma4_text",
    ),
    "gemma4_text-moe": Recipe(
        config={
            **_GEMMA4_WITHOUT_SHARING,
            "attention_k_eq_v": True,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 2,
            "moe_intermediate_size": 64,
        },
        window=8,
        hub="oracles.layouts.looped:gemma4_text",
    ),
    "iquestloopcoder": Recipe(config=_IQUEST, window=8),
    "iquestloopcoder-tied": Recipe(
        config={
            **_IQUEST,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_scaling": _LINEAR,
        },
        window=8,
    ),
    "nanbeige": Recipe(
        config=_llama_like("nanbeige", num_loops=2, head_dim=32, rope_theta=9000.0),
        hub="oracles.layouts.looped:with_rotary_buffers",
    ),
    "nanbeige-loss-weights": Recipe(
        config=_llama_like(
            "nanbeige",
            num_loops=2,
            loop_loss_weights=[0.5, 0.5],
            skip_loop_final_norm=True,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            rope_scaling=_LLAMA3,
        ),
        hub="oracles.layouts.looped:with_rotary_buffers",
    ),
    "nanbeige-one-loop": Recipe(config=_llama_like("nanbeige"), hub="oracles.layouts.looped:with_rotary_buffers"),
    "seed_oss": Recipe(
        config=_llama_like(
            "seed_oss",
            head_dim=32,
            attention_bias=True,
            tie_word_embeddings=False,
            rope_scaling={"rope_type": "default"},
        )
    ),
    "seed_oss-tied": Recipe(
        config=_llama_like(
            "seed_oss",
            head_dim=16,
            attention_out_bias=True,
            mlp_bias=True,
            rope_traditional=True,
            rope_scaling=_NTK,
        ),
        hub="oracles.layouts.looped:with_tied_head",
    ),
    "smollm3": Recipe(
        config=_llama_like("smollm3", num_hidden_layers=4, rope_theta=9000.0),
        hub="oracles.layouts.looped:with_rotary_buffers_and_tied_head",
    ),
    "smollm3-untied": Recipe(
        config=_llama_like(
            "smollm3",
            num_hidden_layers=3,
            no_rope_layers=[0, 1, 1],
            tie_word_embeddings=False,
            attention_bias=True,
            mlp_bias=True,
            rope_scaling=_YARN_PLAIN,
        ),
        hub="oracles.layouts.looped:with_rotary_buffers",
    ),
    "smollm3-sliding": Recipe(
        config=_llama_like(
            "smollm3",
            num_hidden_layers=3,
            no_rope_layer_interval=2,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            sliding_window=8,
        ),
        window=8,
        hub="oracles.layouts.looped:with_rotary_buffers_and_tied_head",
    ),
    "stablelm": Recipe(config=_STABLELM),
    "stablelm-parallel": Recipe(
        config={
            **_STABLELM,
            "use_parallel_residual": True,
            "qk_layernorm": True,
            "use_qkv_bias": False,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
        }
    ),
    "starcoder2": Recipe(config=_STARCODER2, spread={r"embed_tokens\.weight": (0.0, 0.05)}),
    "starcoder2-untied": Recipe(config={**_STARCODER2, "tie_word_embeddings": False, "num_key_value_heads": 4}),
    "talkie": Recipe(config=_TALKIE, hub="oracles.layouts.looped:talkie"),
    "telechat3": Recipe(config=_llama_like("telechat3", rope_theta=9000.0, rope_scaling=_YARN)),
    "telechat3-tied": Recipe(
        config=_llama_like(
            "telechat3",
            rope_theta=9000.0,
            tie_word_embeddings=True,
            attention_bias=True,
            mlp_bias=True,
            head_dim=32,
        )
    ),
}
