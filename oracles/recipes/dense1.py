"""Tiny configurations of dense models: apertus to minicpm, llama with its aliases, ropes and sliding layers."""

from __future__ import annotations

from typing import Any

from oracles.recipe import Recipe

_LAYOUTS = "oracles.layouts.dense1"
_WINDOW = 8
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3["original_max_position_embeddings"] = 16
_DYNAMIC_POSITIONS = 12  # prompts are longer, so that the base grows with every token


def _config(model_type: str, **changes: Any) -> dict[str, Any]:
    """Llama-like dimensions; `changes` on top, and a field that is changed to `...` is left out."""
    fields: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 100,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not ...}


def _apertus(**changes: Any) -> Recipe:
    flags = {"mlp_bias": False, "attention_bias": False, "post_norm": False, "qk_norm": True, "hidden_act": "xielu"}
    config = _config("apertus", **{**flags, **changes})
    below_zero = {r"act_fn\.eps$": (-0.3, 0.1)}  # only there does it change an activation
    return Recipe(config=config, hub=f"{_LAYOUTS}:apertus", spread=below_zero)


def _cohere(**changes: Any) -> Recipe:
    config = _config("cohere", rms_norm_eps=..., layer_norm_eps=1e-5, logit_scale=0.25, **changes)
    return Recipe(config=config)


def _exaone(**changes: Any) -> Recipe:
    names = {"num_hidden_layers": ..., "num_layers": 2, "rms_norm_eps": ..., "layer_norm_epsilon": 1e-5}
    return Recipe(config=_config("exaone", **names, activation_function="silu", **changes))


def _gemma(model_type: str, **changes: Any) -> Recipe:
    config = _config(model_type, **{"head_dim": 32, "rms_norm_eps": 1e-6, **changes})
    small = {r"embed_tokens": (0.0, 0.03)}  # else the scaled, tied embedding alone decides the next token
    return Recipe(config=config, norm_mean=0.0, spread=small)


def _granite(**changes: Any) -> Recipe:
    scales = {
        "logits_scaling": 2.5,
        "attention_multiplier": 0.3,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.6,
    }
    return Recipe(config=_config("granite", **scales, **changes), hub=f"{_LAYOUTS}:tied_head")


def _helium(**changes: Any) -> Recipe:
    return Recipe(config=_config("helium", head_dim=16, **changes))


def _hunyuan(**changes: Any) -> Recipe:
    return Recipe(config=_config("hunyuan_v1_dense", **changes), hub=f"{_LAYOUTS}:tied_head")


def _internlm(model_type: str, **changes: Any) -> Recipe:
    return Recipe(config=_config(model_type, **changes), hub=f"{_LAYOUTS}:internlm")


def _llama(model_type: str = "llama", window: int | None = None, **changes: Any) -> Recipe:
    return Recipe(config=_config(model_type, **changes), window=window, hub=f"{_LAYOUTS}:rotary_and_tied_head")


def _llama4_text(**changes: Any) -> Recipe:
    flags = {"head_dim": 16, "intermediate_size_mlp": 192, "use_qk_norm": True, "no_rope_layers": [1, 0, 1]}
    config = _config("llama4_text", **{"num_hidden_layers": 3, **flags, **changes})
    return Recipe(config=config)


def _mimo(**changes: Any) -> Recipe:
    return Recipe(config=_config("mimo", num_nextn_predict_layers=1, **changes), hub=f"{_LAYOUTS}:mimo")


def _minicpm(**changes: Any) -> Recipe:
    return Recipe(config=_config("minicpm", dim_model_base=24, scale_depth=1.4, scale_emb=3.0, **changes))


RECIPES: dict[str, Recipe] = {
    "apertus": _apertus(tie_word_embeddings=False, rope_scaling=_LLAMA3),
    "apertus-tied-bias": _apertus(tie_word_embeddings=True, mlp_bias=True, rope_traditional=True),
    "cohere": _cohere(),
    "cohere-qknorm-bias": _cohere(use_qk_norm=True, attention_bias=True, layer_norm_bias=True),
    "ernie4_5": Recipe(config=_config("ernie4_5", head_dim=32, use_bias=False, tie_word_embeddings=True)),
    "ernie4_5-untied-bias": Recipe(config=_config("ernie4_5", head_dim=None, use_bias=True, tie_word_embeddings=False)),
    "exaone": _exaone(rope_scaling=_LLAMA3),
    "exaone-untied-bias": _exaone(tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_traditional=True),
    "gemma": _gemma("gemma", num_key_value_heads=1),
    "gemma-traditional": _gemma("gemma", rope_traditional=True, head_dim=16, num_key_value_heads=4),
    "gemma2": _gemma("gemma2", query_pre_attn_scalar=24.0, attn_logit_softcapping=5.0, final_logit_softcapping=1.5),
    "gemma2-mha": _gemma("gemma2", num_key_value_heads=4, rope_traditional=True),
    "glm": Recipe(config=_config("glm", head_dim=32), hub=f"{_LAYOUTS}:rotary_and_tied_head"),
    "glm-untied-bias": Recipe(
        config=_config("glm", head_dim=16, attention_bias=True, tie_word_embeddings=False),
        hub=f"{_LAYOUTS}:rotary_and_tied_head",
    ),
    "glm4": Recipe(config=_config("glm4", head_dim=32, attention_bias=True, partial_rotary_factor=0.5)),
    "glm4-nobias": Recipe(
        config=_config("glm4", head_dim=16, attention_bias=False, partial_rotary_factor=1.0, rope_traditional=False)
    ),
    "granite": _granite(attention_bias=False, mlp_bias=False),
    "granite-untied-bias": _granite(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope_scaling={"type": "linear", "factor": 4.0}
    ),
    "helium": _helium(attention_bias=False, mlp_bias=False, tie_word_embeddings=False),
    "helium-tied-bias": _helium(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "hunyuan_v1_dense": _hunyuan(
        tie_word_embeddings=True, head_dim=32, rope_scaling={"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}
    ),
    "hunyuan_v1_dense-untied-bias": _hunyuan(use_qk_norm=False, attention_bias=True),
    "internlm2": _internlm("internlm2", bias=False),
    "internlm2-tied-dynamic": _internlm(
        "internlm2",
        tie_word_embeddings=True,
        rope_scaling={"type": "dynamic", "factor": 2.0},
        max_position_embeddings=_DYNAMIC_POSITIONS,
    ),
    "internlm2-linear": _internlm(
        "internlm2", rope_scaling={"type": "linear", "factor": 3.0}, rope_traditional=True, num_key_value_heads=...
    ),
    "internlm3": _internlm(
        "internlm3",
        rope_scaling={"rope_type": "dynamic", "factor": 6.0},
        max_position_embeddings=_DYNAMIC_POSITIONS,
    ),
    "internlm3-tied-bias": _internlm(
        "internlm3",
        tie_word_embeddings=True,
        bias=True,
        qkv_bias=True,
        rope_scaling={"rope_type": "linear", "factor": 3.0},
    ),
    "llama": _llama(tie_word_embeddings=False),
    "llama-tied-bias": _llama(attention_bias=True, mlp_bias=True, head_dim=32, num_key_value_heads=...),
    "llama-sliding": _llama(
        window=_WINDOW,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=_WINDOW,
    ),
    "llama-iquestcoder": _llama("iquestcoder", tie_word_embeddings=False, head_dim=32),
    "llama-mistral": _llama("mistral", tie_word_embeddings=False, sliding_window=_WINDOW),
    "llama-xverse": _llama("xverse", tie_word_embeddings=False, num_key_value_heads=...),
    "llama-traditional": _llama(rope_traditional=True),
    "llama-linear": _llama(rope_scaling={"type": "linear", "factor": 4.0}),
    "llama-dynamic": _llama(
        rope_scaling={"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=_DYNAMIC_POSITIONS
    ),
    "llama-llama3": _llama(rope_scaling=_LLAMA3),
    "llama-yarn": _llama(
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        rope_traditional=True,
    ),
    "llama-yarn-mscale": _llama(
        rope_scaling={
            "type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 16,
            "beta_slow": 2,
            "mscale": 1.3,
            "mscale_all_dim": 0.6,
        }
    ),
    "llama-longrope": _llama(
        rope_scaling={
            "rope_type": "longrope",
            "original_max_position_embeddings": 64,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 1.1, 1.3, 1.7, 2.5, 4.0, 7.0, 12.0],
        }
    ),
    "llama-proportional": _llama(
        rope_scaling={"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}
    ),
    "llama-mrope": _llama(rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]}),
    "llama4_text": _llama4_text(tie_word_embeddings=False),
    "llama4_text-tied": _llama4_text(tie_word_embeddings=True, use_qk_norm=False, head_dim=32),
    "mimo": _mimo(),
    "mimo-tied-linear": _mimo(tie_word_embeddings=True, rope_scaling={"type": "linear", "factor": 2.0}),
    "minicpm": _minicpm(),
    "minicpm-longrope": _minicpm(
        rope_scaling={
            "rope_type": "longrope",
            "original_max_position_embeddings": 128,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 1.2, 1.4, 1.8, 2.2, 3.0, 5.0, 9.0],
        }
    ),
    "minicpm-tied": _minicpm(tie_word_embeddings=True),
}
