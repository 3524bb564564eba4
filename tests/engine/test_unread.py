"""What of a config.json may stay unread: every family's recipes, configs as the hub has them, and planted words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import errors, load, read_architecture
from engine.artifacts.unread import BOOKKEEPING, HARMLESS, SILENT, find_unread
from engine.graph.families import FAMILIES, build_spec
from engine.graph.families.common import Config
from oracles.recipe import recipes

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
COMMON = {
    "architectures": ["X"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.0",
    "use_cache": True,
    "_name_or_path": "x",
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "router_aux_loss_coef": 0.001}
QWEN = {"max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False, "tie_word_embeddings": True}
# What configs on the hub hold besides sizes: none of this may keep a folder from loading that mlx-lm loads.
HUB: dict[str, dict[str, Any]] = {
    "llama": {
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "tie_word_embeddings": False,
        "head_dim": 16,
    },
    "mistral": {"sliding_window": 4096, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "mixtral": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.02,
        "router_jitter_noise": 0.0,
        "sliding_window": 4096,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
    },
    "qwen2": {**QWEN, "rope_theta": 1000000.0},
    "qwen2_moe": {
        **QWEN,
        **EXPERTS,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        "output_router_logits": False,
        "shared_expert_intermediate_size": 64,
        "rope_theta": 1000000.0,
    },
    "qwen3": {**QWEN, "attention_bias": False, "head_dim": 16, "rope_scaling": None, "rope_theta": 1000000},
    "qwen3_moe": {
        **QWEN,
        **EXPERTS,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 16,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "output_router_logits": False,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
    },
    "gemma2": {
        "attn_logit_softcapping": 50.0,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0,
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
    },
    "gemma3_text": {
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": None,
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "phi3": {
        "attention_bias": False,
        "embd_pdrop": 0.0,
        "original_max_position_embeddings": 4096,
        "resid_pdrop": 0.0,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": 2047,
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
        "tie_word_embeddings": False,
    },
    "starcoder2": {
        "embedding_dropout": 0.1,
        "mlp_type": "default",
        "norm_epsilon": 1e-5,
        "norm_type": "layer_norm",
        "residual_dropout": 0.1,
        "rope_theta": 100000,
        "sliding_window": 4096,
        "use_bias": True,
    },
    "cohere": {
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.0625,
        "model_max_length": 131072,
        "pad_token_id": 0,
        "rope_theta": 8000000.0,
        "use_qk_norm": False,
    },
    "olmo2": {"attention_bias": False, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False},
    "granite": {
        "attention_bias": False,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "logits_scaling": 8.0,
        "mlp_bias": False,
        "residual_multiplier": 0.22,
        "rope_scaling": None,
        "rope_theta": 10000000.0,
        "tie_word_embeddings": True,
    },
    "qwen3_next": {
        **EXPERTS,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "full_attention_interval": 4,
        "head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 32,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "output_router_logits": False,
        "partial_rotary_factor": 0.25,
        "rope_scaling": None,
        "rope_theta": 10000000,
        "shared_expert_intermediate_size": 64,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "gpt_oss": {
        "attention_bias": True,
        "experts_per_token": 4,
        "head_dim": 16,
        "initial_context_length": 4096,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
    },
    "smollm3": {
        "attention_bias": False,
        "layer_types": ["full_attention"] * 2,
        "max_window_layers": 28,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1],
        "pretraining_tp": 2,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
}


def _numbers(config: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """Last names of the keys in `seen` whose value is a number."""
    for path in seen:
        value: Any = config
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path.rsplit(".", 1)[-1]


def test_every_number_that_a_family_reads_is_judged_and_no_recipe_is_refused() -> None:
    """A family that reads a new number must say, in engine/artifacts/unread.py, what an unread one would mean."""
    judged = {*SILENT, *(name for names in HARMLESS.values() for name in names.split())}
    read: dict[str, str] = {}
    for name, recipe in recipes().items():
        if recipe.config["model_type"] not in FAMILIES:
            continue
        config = Config(recipe.config)
        try:
            build_spec(config)
        except errors.NotBuilt:
            continue
        assert find_unread(recipe.config, config.seen).refused == (), name
        read |= dict.fromkeys(_numbers(recipe.config, config.seen), name)
    assert len(read) > 100
    missing = {key: name for key, name in read.items() if key not in judged and not BOOKKEEPING.fullmatch(key)}
    assert missing == {}


def test_no_name_is_judged_twice() -> None:
    names = [*SILENT, *(name for names in HARMLESS.values() for name in names.split())]
    assert len(names) == len(set(names))
    assert [name for name in SILENT if BOOKKEEPING.fullmatch(name)] == []


@pytest.mark.parametrize("model_type", HUB)
def test_configs_as_the_hub_has_them_are_not_refused(model_type: str, tmp_path: Path) -> None:
    config = {"model_type": model_type, **SIZES, **COMMON, **HUB[model_type]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    unread = read_architecture(tmp_path).unread
    assert unread.refused == ()
    assert {"architectures", "torch_dtype", "initializer_range", "attention_dropout"} <= set(unread.bookkeeping)
    windows = [found for found in unread.listed if found.key == "sliding_window" and found.value is not None]
    assert all("does not apply either" in found.why for found in windows)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("logit_scale", 0.0625, True),
        ("logit_scale", 1.0, False),
        ("logit_scale", None, False),
        ("final_logit_softcapping", 30.0, True),
        ("embedding_multiplier", 12, True),
        ("partial_rotary_factor", 0.5, True),
        ("attention_multiplier", 0.1, True),
        ("sliding_window", 4096, False),
        ("pretraining_tp", 2, False),
        ("num_experts", 8, False),
    ],
)
def test_a_word_of_another_family(llama_folder: Path, tmp_path: Path, key: str, value: object, refused: bool) -> None:
    config = json.loads((llama_folder / "config.json").read_text()) | {key: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(llama_folder / "model.safetensors")
    if refused:
        with pytest.raises(errors.UnsupportedConfig, match=f"{key}={value}.*neutral"):
            load(tmp_path)
    else:
        load(tmp_path).close()


def test_objects_are_entered_where_something_in_them_was_read() -> None:
    config = {"text_config": {"a": 1, "logit_scale": 2.0}, "vision_config": {"logit_scale": 2.0}, "other": {"b": 1}}
    found = find_unread(config, {"text_config", "text_config.a"})
    assert [key.key for key in found.refused] == ["text_config.logit_scale"]
    assert found.bookkeeping == ("vision_config",)
    assert [key.key for key in found.listed] == ["other"]
