"""The models that `frontier bench graph` measures: real shape in small, one for each kind of graph.

Random weights from a seed; only the shape costs time. The windows are shorter than the prompt, so that rotating caches
wrap in every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import errors
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, Recipe

SEED = 11


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes that all models of one `--size` share. `expert`: hidden size of one expert."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    expert: int
    experts: int
    vocab: int
    window: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def common(self, model_type: str) -> dict[str, Any]:
        """What every config.json holds."""
        return {
            "model_type": model_type,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.mlp,
            "vocab_size": self.vocab,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "eos_token_id": 1,
        }


SIZES = {
    "tiny": Dims(hidden=128, layers=4, heads=4, kv_heads=2, mlp=256, expert=64, experts=4, vocab=512, window=64),
    "small": Dims(hidden=512, layers=8, heads=8, kv_heads=4, mlp=1408, expert=256, experts=16, vocab=8192, window=128),
}


def _gemma3(d: Dims) -> dict[str, Any]:
    return {
        **d.common("gemma3_text"),
        "query_pre_attn_scalar": d.head_dim,
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "sliding_window": d.window,
        "sliding_window_pattern": 4,
    }


def _gpt_oss(d: Dims) -> dict[str, Any]:
    return {
        **d.common("gpt_oss"),
        "intermediate_size": d.expert,
        "num_local_experts": d.experts,
        "num_experts_per_tok": 4,
        "sliding_window": d.window,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        },
        "layer_types": ["sliding_attention", "full_attention"] * (d.layers // 2),
    }


def _qwen3_moe(d: Dims) -> dict[str, Any]:
    return {
        **d.common("qwen3_moe"),
        "num_experts": d.experts,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": d.expert,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }


def _cohere2(d: Dims) -> dict[str, Any]:
    return {
        **d.common("cohere2"),
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.25,
        "sliding_window": d.window,
        "sliding_window_pattern": 4,
    }


def _mamba2(d: Dims) -> dict[str, Any]:
    return {
        **d.common("mamba2"),
        "num_heads": 2 * d.heads,
        "intermediate_size": 2 * d.hidden,
        "state_size": d.head_dim,
        "n_groups": 1,
        "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": "auto",
        "tie_word_embeddings": True,
    }


def _qwen3_next(d: Dims) -> dict[str, Any]:
    return {
        **_qwen3_moe(d),
        "model_type": "qwen3_next",
        "linear_num_key_heads": d.kv_heads,
        "linear_num_value_heads": d.heads,
        "linear_key_head_dim": d.head_dim,
        "linear_value_head_dim": d.head_dim,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "partial_rotary_factor": 0.25,
        "shared_expert_intermediate_size": d.expert,
    }


def _deepseek_v3(d: Dims) -> dict[str, Any]:
    return {
        **d.common("deepseek_v3"),
        "num_key_value_heads": d.heads,
        "kv_lora_rank": 2 * d.head_dim,
        "q_lora_rank": d.hidden // 2,
        "qk_rope_head_dim": d.head_dim // 2,
        "qk_nope_head_dim": d.head_dim,
        "v_head_dim": d.head_dim,
        "moe_intermediate_size": d.expert,
        "n_routed_experts": d.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    }


# Decays and steps of recurrences that neither forget at once nor grow; speed does not depend on them, overflow would.
SPREAD = {r"A_log$": (0.0, 0.7), r"dt_bias$": (-2.0, 1.0), r"conv1d\.weight$": (0.3, 0.3)}

CONFIGS: dict[str, Callable[[Dims], dict[str, Any]]] = {
    "llama": lambda d: d.common("llama"),
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "qwen3_moe": _qwen3_moe,
    "cohere2": _cohere2,
    "mamba2": _mamba2,
    "qwen3_next": _qwen3_next,
    "deepseek_v3": _deepseek_v3,
}


def config_of(model: str, size: str) -> dict[str, Any]:
    """The config.json of one model. Errors: `UnknownField` for a model or size that is not here."""
    if model not in CONFIGS:
        raise errors.UnknownField("--models", model, CONFIGS)
    if size not in SIZES:
        raise errors.UnknownField("--size", size, SIZES)
    return CONFIGS[model](SIZES[size])


def prompt(size: str, tokens: int) -> tuple[int, ...]:
    """Seeded token ids within the vocabulary of a size."""
    draws = np.random.Generator(np.random.PCG64(SEED)).integers(2, SIZES[size].vocab, tokens)
    return tuple(int(token) for token in draws)


def build(models: Sequence[str], size: str, dtype: str) -> dict[str, Path]:
    """The folder of each model, built by mlx-lm's own classes in one child process, or found from before.

    Errors: `UnknownField` before anything is built; `OracleRefused`.
    """
    recipes = {model: Recipe(config=config_of(model, size), spread=SPREAD, quants=()) for model in models}
    with Worker(StackConfig(stack="mlx-lm", model="")) as worker:
        return {model: worker.make(recipe, Form(dtype=dtype)) for model, recipe in recipes.items()}
