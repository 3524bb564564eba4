"""The models that `frontier bench device` measures: shapes of real ones, whose weights are drawn on the device.

"tiny" is there to try a measurement out, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import errors
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, Recipe

SEED = 17
# packing -> (dtype, packing of `oracles.build_adapter`)
PACKINGS: dict[str, tuple[str, str | None]] = {
    "bf16": ("bfloat16", None),
    "4bit": ("bfloat16", "q4g64"),
    "fp32": ("float32", None),
    "fp32-4bit": ("float32", "q4g64"),
}
COMMON = {"rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "attention_bias": False, "hidden_act": "silu"}

# Of SmolLM2-135M, Qwen3-0.6B and Qwen3-8B.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "tiny": COMMON
    | {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 256,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    },
    "135m": COMMON
    | {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
    },
    "0.6b": COMMON
    | {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
    },
    "8b": COMMON
    | {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
    },
}


def config_of(model: str) -> Mapping[str, Any]:
    """Its config.json, without dtype and packing. Errors: `UnknownField`."""
    if model not in CONFIGS:
        raise errors.UnknownField("--models", model, CONFIGS)
    return CONFIGS[model]


def form_of(packing: str) -> Form:
    """How the folder of that packing is written. Errors: `UnknownField`."""
    if packing not in PACKINGS:
        raise errors.UnknownField("--packings", packing, PACKINGS)
    dtype, quant = PACKINGS[packing]
    return Form(dtype=dtype, quant=quant, layout="drawn")


def build(wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Path]:
    """The folder of each (model, packing), written by mlx-lm's own classes in one child process, or found from before.

    Errors: `UnknownField` before anything is written; `OracleRefused`.
    """
    made = {pair: (Recipe(config=config_of(pair[0])), form_of(pair[1])) for pair in wanted}
    with Worker(StackConfig(stack="mlx-lm", model="")) as worker:
        return {pair: worker.make(recipe, form) for pair, (recipe, form) in made.items()}


def prompts(model: str, tokens: int, rows: int) -> tuple[tuple[int, ...], ...]:
    """Seeded token ids, `rows` times `tokens`."""
    draws = np.random.Generator(np.random.PCG64(SEED)).integers(2, config_of(model)["vocab_size"], (rows, tokens))
    return tuple(tuple(int(token) for token in row) for row in draws)
