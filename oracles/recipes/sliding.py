"""Tiny configurations: sliding-window and chunked attention, and the text towers of thin vision wrappers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

WINDOW = 8
# Sharper attention, where a free run would settle on a token or two.
SHARP = {r"\.[qk]_norm\.weight": (2.0, 0.5)}
BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 101,
    "rms_norm_eps": 3e-4,
    "max_position_embeddings": 512,
    "rope_theta": 20000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}
SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# mlx-lm reads the scale of ministral3's queries and its rope from the same object.
MINISTRAL_ROPE = {**YARN, "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}


def _config(model_type: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": model_type, **BASE, **changes}


def _wrapped(model_type: str, text: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A vision wrapper's config: the text tower under text_config, a vision tower beside it that nobody reads."""
    return {
        "model_type": model_type,
        "text_config": dict(text),
        "vision_config": {"model_type": "vision", "hidden_size": 32, "num_hidden_layers": 2},
        "eos_token_id": 1,
        **changes,
    }


def _hub(function: str) -> str:
    return f"oracles.layouts.sliding:{function}"


_COHERE2: dict[str, Any] = {
    "layer_norm_eps": 3e-4,
    "logit_scale": 0.25,
    "sliding_window": WINDOW,
    "sliding_window_pattern": 4,
    "tie_word_embeddings": True,
}
_MINISTRAL3: dict[str, Any] = {"rope_parameters": MINISTRAL_ROPE, "layer_types": [SLIDING, FULL, SLIDING, FULL]}
_MINISTRAL3 |= {"sliding_window": WINDOW}
_GLIMMER: dict[str, Any] = {
    "num_attention_heads": 4,
    "post_norm_eps": 1e-2,
    "sliding_window": WINDOW,
    "qk_scale_factor": 3.87,
    "hidden_activation": "silu",
    "final_logit_softcapping": 20.0,
    "output_multiplier": 0.2,
}
# Glimmer's block norms store w for 1 + w, its last norm stores w.
_GLIMMER_NORMS = {r"\.layers\..*layernorm": (0.0, 0.3)}
_SPARK_ROPE: dict[str, Any] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    FULL: {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
}
_LLAMA4 = _config(
    "llama4_text",
    num_hidden_layers=5,
    num_attention_heads=4,
    attention_bias=False,
    attention_chunk_size=WINDOW,
    interleave_moe_layer_step=2,
    intermediate_size=64,
    intermediate_size_mlp=128,
    num_experts_per_tok=1,
    num_local_experts=4,
    rope_scaling=LLAMA3,
    use_qk_norm=True,
    attn_temperature_tuning=4,
    floor_scale=6,
    attn_scale=0.1,
)
_GEMMA3: dict[str, Any] = {k: v for k, v in BASE.items() if k not in ("vocab_size", "tie_word_embeddings")} | {
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 16,
    "sliding_window": WINDOW,
    "sliding_window_pattern": 3,
    "rope_local_base_freq": 10000.0,
    "rope_theta": 1e6,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_GEMMA4: dict[str, Any] = {
    k: v for k, v in BASE.items() if k not in ("vocab_size", "rope_theta", "tie_word_embeddings")
} | {
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "global_head_dim": 32,
    "vocab_size_per_layer_input": 101,
    "hidden_size_per_layer_input": 32,
    "num_kv_shared_layers": 2,
    "sliding_window": WINDOW,
    "layer_types": [SLIDING, FULL] * 3,
    "final_logit_softcapping": 30.0,
}
_GEMMA4_MOE = _GEMMA4 | {
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL] * 2,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
}
_LLAMA_TEXT = _config("llama", rope_theta=5e5)
_QWEN2_VL: dict[str, Any] = {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "rope_theta": 1e6}
_QWEN3_MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [],
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 3, 3]},
}

RECIPES: dict[str, Recipe] = {
    "cohere2": Recipe(config=_config("cohere2", **_COHERE2), window=WINDOW),
    "cohere2-bias": Recipe(
        config=_config(
            "cohere2",
            **_COHERE2 | {"sliding_window_pattern": 2},
            num_hidden_layers=3,
            attention_bias=True,
            layer_norm_bias=True,
        ),
        window=WINDOW,
    ),
    "exaone4": Recipe(
        config=_config("exaone4", rope_scaling=LLAMA3, sliding_window=WINDOW, sliding_window_pattern="LLLG"),
        window=WINDOW,
    ),
    "exaone4-full": Recipe(
        config=_config(
            "exaone4",
            num_hidden_layers=2,
            rope_scaling=None,
            sliding_window=None,
            sliding_window_pattern=None,
            tie_word_embeddings=True,
        ),
        spread=SHARP,
    ),
    "gemma3": Recipe(
        config=_wrapped("gemma3", _GEMMA3, vocab_size=101),
        window=WINDOW,
        hub=_hub("gemma3"),
        norm_mean=0.0,
        spread=SHARP,
    ),
    "gemma4": Recipe(config=_wrapped("gemma4", _GEMMA4, vocab_size=101), window=WINDOW, hub=_hub("gemma4")),
    "gemma4-moe": Recipe(
        config=_wrapped("gemma4_unified", _GEMMA4_MOE, vocab_size=101), window=WINDOW, hub=_hub("gemma4")
    ),
    "llama4": Recipe(config=_wrapped("llama4", _LLAMA4), window=WINDOW, hub=_hub("llama4")),
    "llama4-bias": Recipe(
        config=_wrapped(
            "llama4",
            _LLAMA4
            | {
                "no_rope_layers": [1, 1, 1, 0],
                "no_rope_layer_interval": 4,
                "interleave_moe_layer_step": 1,
                "num_hidden_layers": 4,
                "attention_bias": True,
                "use_qk_norm": False,
                "rope_scaling": None,
                "attn_temperature_tuning": 0,
            },
        ),
        window=WINDOW,
        hub=_hub("llama4"),
    ),
    "ministral3": Recipe(config=_config("ministral3", **_MINISTRAL3), window=WINDOW, hub=_hub("llama")),
    "ministral3-full": Recipe(
        config=_config(
            "ministral3",
            num_hidden_layers=2,
            num_key_value_heads=None,
            tie_word_embeddings=True,
            rope_parameters=MINISTRAL_ROPE | {"rope_type": "default"},
        ),
        hub=_hub("llama"),
    ),
    "mistral3": Recipe(
        config=_wrapped("mistral3", _config("ministral3", **_MINISTRAL3)), window=WINDOW, hub=_hub("mistral3")
    ),
    "mistral3-llama": Recipe(
        config=_wrapped("llava", {k: v for k, v in _LLAMA_TEXT.items() if k != "tie_word_embeddings"}),
        hub=_hub("llava"),
    ),
    "mistral3-window": Recipe(
        config=_wrapped(
            "mistral3",
            _config("mistral", sliding_window=WINDOW, layer_types=[SLIDING, FULL] * 2, tie_word_embeddings=True),
        ),
        window=WINDOW,
        hub=_hub("mistral3"),
    ),
    "muse_glimmer": Recipe(
        config=_config("muse_glimmer", **_GLIMMER), window=WINDOW, hub=_hub("muse_glimmer"), spread=_GLIMMER_NORMS
    ),
    "muse_glimmer-nested": Recipe(
        config=_wrapped(
            "muse_glimmer",
            _config(
                "muse_glimmer_text",
                **_GLIMMER,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 5e5},
                layer_types=[SLIDING, FULL, SLIDING, FULL],
                layer_rope_theta=[5e5, 0, 0, 5e5],
            ),
        ),
        window=WINDOW,
        hub=_hub("muse_glimmer"),
        spread={r"post_\w+_layernorm": (0.0, 1.0), **_GLIMMER_NORMS},
    ),
    "olmo3": Recipe(
        config=_config("olmo3", sliding_window=WINDOW, rope_scaling=YARN | {"attention_factor": 1.138629}),
        window=WINDOW,
    ),
    "olmo3-bias": Recipe(
        config=_config(
            "olmo3",
            num_hidden_layers=3,
            num_key_value_heads=None,
            sliding_window=WINDOW,
            attention_bias=True,
            tie_word_embeddings=True,
            layer_types=[FULL, SLIDING, FULL],
        ),
        window=WINDOW,
        spread=SHARP,
    ),
    "pixtral": Recipe(
        config=_wrapped("pixtral", {k: v for k, v in _LLAMA_TEXT.items() if k != "tie_word_embeddings"}),
        hub=_hub("pixtral"),
    ),
    "plamo3": Recipe(
        config=_config(
            "plamo3", window_size=WINDOW, rope_local_theta=5000.0, sliding_window_pattern=2, tie_word_embeddings=True
        ),
        window=WINDOW,
        hub=_hub("tied_head"),
        norm_mean=0.0,
        spread=SHARP,
    ),
    "plamo3-untied": Recipe(
        config=_config("plamo3", num_hidden_layers=3, window_size=64, sliding_window=WINDOW, sliding_window_pattern=3),
        window=WINDOW,
        norm_mean=0.0,
        spread=SHARP,
    ),
    "qwen2_vl": Recipe(config=_config("qwen2_vl", **_QWEN2_VL), hub=_hub("qwen_vl")),
    "qwen2_vl-nested": Recipe(
        config=_wrapped("qwen2_5_vl", _config("qwen2_5_vl_text", **_QWEN2_VL)), hub=_hub("qwen_vl_nested")
    ),
    "qwen2_vl-tied": Recipe(config=_config("qwen2_5_vl", **_QWEN2_VL, tie_word_embeddings=True), hub=_hub("qwen_vl")),
    "qwen3_vl": Recipe(
        config=_wrapped(
            "qwen3_vl",
            _config(
                "qwen3_vl_text",
                rope_theta=None,
                rope_parameters={"rope_type": "default", "rope_theta": 5e6, "mrope_section": [2, 3, 3]},
            ),
        ),
        hub=_hub("qwen_vl_nested"),
    ),
    "qwen3_vl-tied": Recipe(
        config=_wrapped("qwen3_vl", _config("qwen3_vl_text", rope_theta=5e6, head_dim=32, tie_word_embeddings=True)),
        hub=_hub("qwen_vl_nested"),
    ),
    "qwen3_vl_moe": Recipe(
        config=_wrapped("qwen3_vl_moe", _config("qwen3_vl_moe_text", **_QWEN3_MOE)), hub=_hub("qwen3_vl_moe")
    ),
    "spark2_5": Recipe(
        config=_config(
            "spark2_5",
            sliding_window=WINDOW,
            rope_parameters=_SPARK_ROPE,
            hidden_act="gelu",
            tie_word_embeddings=True,
        ),
        window=WINDOW,
        hub=_hub("spark2_5"),
    ),
    "spark2_5-bias": Recipe(
        config=_config(
            "spark2_5",
            num_hidden_layers=2,
            sliding_window=WINDOW,
            rope_parameters=_SPARK_ROPE,
            layer_types=[FULL, SLIDING],
            attention_bias=True,
            mlp_bias=True,
            hidden_act="gelu",
        ),
        window=WINDOW,
        hub=_hub("spark2_5"),
    ),
}
