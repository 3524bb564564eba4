"""The hub's names of dense models, where they differ from mlx-lm's: left-over rotary tables, a tied head that is stored
all the same, layers for multi-token prediction. Each function: (weights by mlx-lm's names, config) -> by the hub's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, Any]
Config = Mapping[str, Any]


def _rotary(weights: Weights, config: Config, name: str) -> Weights:
    """One inverse-frequency table a layer, as old checkpoints store them."""
    half = config["hidden_size"] // config["num_attention_heads"] // 2
    layers = range(config["num_hidden_layers"])
    return {**weights, **{f"model.layers.{i}.{name}.inv_freq": mx.full((half,), 0.5) for i in layers}}


def tied_head(weights: Weights, config: Config) -> Weights:
    """The tied head is stored as a matrix of its own."""
    if "lm_head.weight" in weights:
        return dict(weights)
    return {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}


def rotary_and_tied_head(weights: Weights, config: Config) -> Weights:
    """llama, glm: rotary tables and the tied head."""
    return _rotary(tied_head(weights, config), config, "self_attn.rotary_emb")


def apertus(weights: Weights, config: Config) -> Weights:
    """The two alphas of xIELU have shape [1]; the tied head is stored."""
    return {
        key: value[None] if key.endswith(("alpha_p", "alpha_n")) else value
        for key, value in tied_head(weights, config).items()
    }


def internlm(weights: Weights, config: Config) -> Weights:
    """internlm2, internlm3: rotary tables."""
    return _rotary(weights, config, "attention.rope")


def mimo(weights: Weights, config: Config) -> Weights:
    """llama's, and a layer that predicts the token after the next one."""
    extra = {
        f"model.mtp_layers.0.{name}.weight": mx.zeros((config["hidden_size"],) * 2)
        for name in ("self_attn.q_proj", "mlp.up_proj", "input_proj")
    }
    return {**rotary_and_tied_head(weights, config), **extra}
