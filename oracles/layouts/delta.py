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
