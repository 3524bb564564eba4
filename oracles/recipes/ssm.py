"""Tiny configurations: state-space models and their hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracles.recipe import Recipe

LAYOUTS = "oracles.layouts.ssm:"
# Decays between about 0.2 and 0.95 a token, so that a state neither dies at once nor grows.
SPREAD = {r"\.A_log$": (-1.0, 0.5), r"conv1d\.weight$": (0.0, 0.4)}
BASE: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2}


def _recipe(model_type: str, *parts: Mapping[str, Any], **fields: Any) -> Recipe:
    config: dict[str, Any] = {"model_type": model_type}
    for part in (BASE, *parts):
        config.update(part)
    return Recipe(**{"config": config, "hub": LAYOUTS + "hub", "spread": SPREAD, **fields})


MAMBA2: dict[str, Any] = {
    "num_heads": 8,
    "head_dim": 16,
    "intermediate_size": 128,
    "state_size": 16,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
    "time_step_limit": [0.0, float("inf")],
    "time_step_rank": "auto",
}

MAMBA: dict[str, Any] = {
    "intermediate_size": 128,
    "state_size": 16,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_rank": "auto",
}

RECIPES: dict[str, Recipe] = {
    "mamba2": _recipe("mamba2", MAMBA2),
    "mamba2-untied": _recipe(
        "mamba2",
        MAMBA2,
        {
            "ssm_state_size": 32,
            "n_groups": 1,
            "use_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 2,
            "tie_word_embeddings": False,
            "time_step_limit": [0.5, 0.9],
        },
    ),
    "mamba": _recipe("mamba", MAMBA),
    "mamba-bias": _recipe(
        "mamba",
        MAMBA,
        {"use_bias": True, "use_conv_bias": False, "time_step_rank": 32, "tie_word_embeddings": False},
    ),
    "mamba-falcon": _recipe("falcon_mamba", MAMBA, {"mixer_rms_eps": 1e-3}),
}
