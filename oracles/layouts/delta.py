"""Original hub layouts: gated delta hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from oracles.layouts.moe2 import stacked, stacked_tied

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))
NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")


def original(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Convolutions [C, 1, W], norms as w for 1 + w, and a layer that predicts further tokens."""
    out: Weights = {"mtp.fc.weight": JUNK}
    for name, value in weights.items():
        if name.endswith("conv1d.weight"):
            value = value.moveaxis(1, 2)
        elif name.endswith(tuple(f"{norm}.weight" for norm in NORMS)):
            value = value - 1
        out[name] = value
    return out


def experts(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The same with experts one by one, and the head of a tied model stored a second time."""
    split = stacked_tied(weights, config) if config.get("tie_word_embeddings") else stacked(weights, config)
    return original(split, config)


def _tower(weights: Mapping[str, mx.array]) -> Weights:
    """The text tower under model.language_model with its head at the top, beside another tower."""
    out: Weights = {"model.visual.patch_embed.proj.weight": JUNK}
    for name, value in weights.items():
        name = name.removeprefix("language_model.")
        out["model.language_model" + name.removeprefix("model") if name.startswith("model.") else name] = value
    return out


def tower(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """A vision model's text tower in the original layout."""
    out = _tower(original(weights, config))
    if config["text_config"].get("tie_word_embeddings"):
        out["lm_head.weight"] = out["model.language_model.embed_tokens.weight"]
    return out


def tower_experts(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The same with gate and up of all experts in one array."""
    out: Weights = {}
    for name, value in tower(weights, config).items():
        at, _, part = name.partition(".switch_mlp.")
        if part == "gate_proj.weight":
            up = weights[
                "language_model.model" + at.removeprefix("model.language_model") + ".switch_mlp.up_proj.weight"
            ]
            out[f"{at}.experts.gate_up_proj"] = mx.concatenate([value, up], axis=1)
        elif part == "down_proj.weight":
            out[f"{at}.experts.down_proj"] = value
        elif not part:
            out[name] = value
    return out


def filters(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Convolutions [C, 1, W], and the head of a tied model stored a second time."""
    out = {
        name: value.moveaxis(1, 2) if "conv" in name and value.ndim == 3 else value for name, value in weights.items()
    }
    if config["tie_word_embeddings"]:
        out["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return out


def scaled_filters(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The same with a rotary table, and the embedding's factor stored too."""
    tables = {"model.layers.1.self_attn.rotary_emb.inv_freq": JUNK, "model.embed_tokens.embed_scale": JUNK}
    return filters(weights, config) | tables
