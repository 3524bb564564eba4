"""Tiny configurations: gpt2 to qwen3 of the dense families with full attention."""

from __future__ import annotations

from typing import Any

from oracles.recipe import Recipe

HUB = "oracles.layouts.dense2:"

GPT: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 101,
}
DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 101,
}
GATED: dict[str, Any] = {**DENSE, "intermediate_size": 128, "num_key_value_heads": 2}

GPT2: dict[str, Any] = {"model_type": "gpt2", **GPT, "n_ctx": 128}
BIGCODE: dict[str, Any] = {"model_type": "gpt_bigcode", **GPT, "n_inner": 128}
NEOX: dict[str, Any] = {
    "model_type": "gpt_neox",
    **DENSE,
    "max_position_embeddings": 128,
    "layer_norm_eps": 1e-5,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
}
LILLE: dict[str, Any] = {
    "model_type": "lille-130m",
    "block_size": 128,
    "layer_norm_eps": 1e-5,
    "n_embd": 64,
    "n_head": 4,
    "n_kv_heads": 2,
    "n_layer": 2,
    "rope_theta": 10000.0,
    "vocab_size": 101,
}
NANOCHAT: dict[str, Any] = {"model_type": "nanochat", **GATED, "max_position_embeddings": 128, "rope_theta": 10000.0}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron",
    **GATED,
    "hidden_act": "relu2",
    "norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
# Spreads with which greedy output follows its input.
WIDE = {r"embed_tokens\.weight": (0.0, 0.8)}
SMALL_SPREAD = {r"(final_layernorm|down_proj|dense)\.bias": (0.0, 0.02)}
NEOX_SPREAD = {r"embed_in\.weight": (0.0, 0.3), r"dense_4h_to_h\.weight": (0.0, 0.05)}
SQUARED = {r"mlp\.up_proj\.weight": (0.0, 0.08)}  # squared activations would drown the residual stream
ATTENDS: dict[str, Any] = {"n_heads_in_group": 2}
LINEAR: dict[str, Any] = {"replace_with_linear": True}
ABSENT: dict[str, Any] = {"no_op": True}
NAS: dict[str, Any] = {
    "model_type": "nemotron-nas",
    **DENSE,
    "num_hidden_layers": 5,
    "rms_norm_eps": 1e-5,
    "block_configs": [
        {"attention": ATTENDS, "ffn": {"ffn_mult": 2.625}},
        {"attention": ABSENT, "ffn": {"ffn_mult": 6.5}},
        {"attention": LINEAR, "ffn": ABSENT},
        {"attention": {"n_heads_in_group": 4}, "ffn": LINEAR},
        {"attention": ABSENT, "ffn": ABSENT},
    ],
}
NAS_LINEAR_FIRST: dict[str, Any] = {
    **NAS,
    "num_hidden_layers": 3,
    "block_configs": [
        {"attention": LINEAR, "ffn": LINEAR},
        {"attention": ATTENDS, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"n_heads_in_group": 1}, "ffn": {"ffn_mult": 1.0}},
    ],
}
OLMO: dict[str, Any] = {
    "model_type": "olmo",
    "d_model": 64,
    "n_layers": 2,
    "mlp_hidden_size": 256,
    "n_heads": 4,
    "vocab_size": 101,
    "embedding_size": 128,
}
OLMO2: dict[str, Any] = {"model_type": "olmo2", **GATED, "rms_norm_eps": 1e-6, "max_position_embeddings": 128}
OPENELM: dict[str, Any] = {
    "model_type": "openelm",
    "head_dim": 32,
    "num_transformer_layers": 3,
    "model_dim": 64,
    "vocab_size": 101,
    "ffn_dim_divisor": 64,
    "num_query_heads": [2, 4, 4],
    "num_kv_heads": [1, 2, 4],
    "ffn_multipliers": [1.0, 1.3, 2.0],
}
PHI: dict[str, Any] = {"model_type": "phi", **GATED, "num_key_value_heads": 4, "max_position_embeddings": 128}
PHI3: dict[str, Any] = {"model_type": "phi3", **GATED, "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
LONGROPE: dict[str, Any] = {
    "short_factor": [1.0, 1.01, 1.02, 1.05, 1.1, 1.2],
    "long_factor": [1.0, 1.1, 1.5, 2.0, 3.5, 6.0],
}
PHI3SMALL: dict[str, Any] = {
    "model_type": "phi3small",
    **DENSE,
    "dense_attention_every_n_layers": 2,
    "ff_intermediate_size": 128,
    "gegelu_limit": 1.5,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 100352,  # the module bans ids up to 100351, whatever the vocabulary is
    "num_key_value_heads": 2,
    "mup_embedding_multiplier": 0.5,
    "blocksparse_block_size": 32,
    "blocksparse_num_local_blocks": 1,
    "blocksparse_vert_stride": 2,
}
PLAMO: dict[str, Any] = {
    "model_type": "plamo",
    **DENSE,
    "num_attention_heads": 8,
    "n_shared_head": 4,
    "intermediate_size": 128,
    "rms_norm_eps": 1e-6,
}
QWEN: dict[str, Any] = {
    "model_type": "qwen",
    **DENSE,
    "kv_channels": 16,
    "max_position_embeddings": 128,
    "intermediate_size": 256,
}
QWEN2: dict[str, Any] = {"model_type": "qwen2", **GATED, "rms_norm_eps": 1e-6, "max_position_embeddings": 128}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    **GATED,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "head_dim": 32,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}

RECIPES: dict[str, Recipe] = {
    "gpt2": Recipe(config=GPT2, hub=HUB + "gpt2"),
    "gpt_bigcode": Recipe(config=BIGCODE),
    "gpt_bigcode-multihead": Recipe(
        config={
            **BIGCODE,
            "multi_query": False,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
        }
    ),
    "gpt_neox": Recipe(config=NEOX, hub=HUB + "gpt_neox", spread=NEOX_SPREAD),
    "gpt_neox-sequential": Recipe(
        config={**NEOX, "use_parallel_residual": False, "rotary_pct": 1.0, "rotary_emb_base": 25000},
        hub=HUB + "gpt_neox",
        spread=NEOX_SPREAD,
    ),
    "gptj": Recipe(config={"model_type": "gptj", **GPT, "rotary_dim": 8}, hub=HUB + "gptj"),
    "gptj-full-rope": Recipe(config={"model_type": "gptj", **GPT, "rotary_dim": None}, hub=HUB + "gptj"),
    "lille-130m": Recipe(config=LILLE, hub=HUB + "lille"),
    "nanochat": Recipe(config=NANOCHAT),
    "nemotron": Recipe(config=NEMOTRON, norm_mean=0.0, spread=SQUARED),
    "nemotron-biased": Recipe(
        config={
            **NEMOTRON,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "head_dim": 32,
            "partial_rotary_factor": 1.0,
            "rope_scaling": {"type": "linear", "factor": 2.0},
        },
        norm_mean=0.0,
        spread={r"mlp\.up_proj\.weight": (0.0, 0.05)},
    ),
    "nemotron-nas": Recipe(config=NAS, hub=HUB + "tied_head"),
    "nemotron-nas-biased": Recipe(
        config={
            **NAS_LINEAR_FIRST,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "hidden_act": "gelu_new",
            "rope_scaling": LLAMA3,
            "rope_theta": 500000.0,
        },
        hub=HUB + "tied_head",
    ),
    "nemotron-nas-relu": Recipe(config={**NAS, "hidden_act": "relu"}, hub=HUB + "tied_head"),
    "nemotron-nas-gelu": Recipe(config={**NAS_LINEAR_FIRST, "hidden_act": "gelu"}, hub=HUB + "tied_head"),
    "olmo": Recipe(config=OLMO),
    "olmo2": Recipe(config=OLMO2, hub=HUB + "rotary"),
    "olmo2-untied-biased": Recipe(
        config={
            **OLMO2,
            "head_dim": 32,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "rope_theta": 500000,
            "rope_traditional": True,
        },
        hub=HUB + "rotary",
        spread=WIDE,
    ),
    "olmo2-longrope": Recipe(
        config={
            **OLMO2,
            "rope_scaling": {
                "rope_type": "longrope",
                "original_max_position_embeddings": 32,
                "short_factor": [1.0] * 8,
                "long_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 2.5, 3.5, 6.0],
            },
        },
        hub=HUB + "rotary",
    ),
    "olmo2-proportional": Recipe(
        config={**OLMO2, "rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}},
        hub=HUB + "rotary",
    ),
    "openelm": Recipe(config=OPENELM, spread={"token_embeddings": (0.0, 0.08)}),
    "openelm-untied": Recipe(
        config={
            **OPENELM,
            "normalize_qk_projections": False,
            "share_input_output_layers": False,
            "rms_norm_eps": 1e-5,
            "rope_freq_constant": 50000,
        }
    ),
    "phi": Recipe(config=PHI),
    "phi-grouped": Recipe(
        config={**PHI, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rope_theta": 50000.0}
    ),
    "phi3": Recipe(config=PHI3),
    "phi3-longrope": Recipe(
        config={
            **PHI3,
            "rope_scaling": {"type": "longrope", **LONGROPE},
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 32,
            "tie_word_embeddings": True,
        }
    ),
    "phi3-su": Recipe(
        config={
            **PHI3,
            "num_attention_heads": 4,
            "rope_scaling": {"type": "su", "short_factor": 1.0, "long_factor": 2.0},
        }
    ),
    "phi3-linear": Recipe(
        config={**PHI3, "rope_scaling": {"type": "linear", "factor": 2.0, "long_factor": 1.0}, "rope_traditional": True}
    ),
    # window: prompts of one block and of three; longer ones would cost too much at this vocabulary
    "phi3small": Recipe(config=PHI3SMALL, window=16, hub=HUB + "rotary", spread=SMALL_SPREAD),
    "phi3small-unscaled": Recipe(
        config={
            **PHI3SMALL,
            "mup_use_scaling": False,
            "mup_embedding_multiplier": 0.0,
            "mup_width_multiplier": 0.0,
            "rope_position_scale": 0.5,
            "rope_embedding_base": 10000,
        },
        hub=HUB + "rotary",
    ),
    "plamo": Recipe(config=PLAMO),
    "plamo-traditional": Recipe(config={**PLAMO, "rope_traditional": True, "rope_theta": 50000, "n_shared_head": 2}),
    "qwen": Recipe(config=QWEN),
    "qwen-biased": Recipe(config={**QWEN, "no_bias": False}),
    "qwen2": Recipe(config=QWEN2, hub=HUB + "qwen2"),
    "qwen2-untied": Recipe(
        config={**QWEN2, "tie_word_embeddings": False, "rope_traditional": True, "rope_theta": 10000.0},
        hub=HUB + "qwen2",
    ),
    "qwen2-linear": Recipe(config={**QWEN2, "rope_scaling": {"type": "linear", "factor": 4.0}}, hub=HUB + "qwen2"),
    "qwen2-dynamic": Recipe(
        config={**QWEN2, "max_position_embeddings": 16, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        hub=HUB + "qwen2",
    ),
    "qwen2-yarn": Recipe(config={**QWEN2, "rope_scaling": YARN}, hub=HUB + "qwen2"),
    "qwen2-mrope": Recipe(
        config={**QWEN2, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, hub=HUB + "qwen2"
    ),
    "qwen3": Recipe(config=QWEN3, hub=HUB + "tied_head"),
    "qwen3-untied": Recipe(config={**QWEN3, "rope_theta": 10000, "tie_word_embeddings": False}, hub=HUB + "tied_head"),
    "qwen3-nested": Recipe(
        config={
            **{key: value for key, value in QWEN3.items() if key != "rope_theta"},
            "rope_parameters": {**YARN, "rope_theta": 50000.0, "mscale": 1.2, "mscale_all_dim": 0.7},
        },
        hub=HUB + "tied_head",
    ),
}
