"""Original hub layouts: short convolutions, linear attention and other recurrences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))


def _renamed(weights: Mapping[str, mx.array], pairs: Mapping[str, str]) -> Weights:
    out: Weights = {}
    for name, value in weights.items():
        for pattern, to in pairs.items():
            name = re.sub(pattern, to, name)
        out[name] = value
    return out


def _unstacked(weights: Mapping[str, mx.array], stacked: str, each: str) -> Weights:
    """One key per expert. stacked: pattern of the stack, the rest of the name after it; each: with {} for the index."""
    out: Weights = {}
    for name, value in weights.items():
        if re.search(stacked, name):
            out.update({re.sub(stacked, each.format(e), name): value[e] for e in range(value.shape[0])})
        else:
            out[name] = value
    return out


def lfm2(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Filters [C, 1, W] (recurrent_gemma's too)."""
    return {k: v.swapaxes(1, 2) if re.search(r"conv(_1d)?\.weight$", k) else v for k, v in weights.items()}


def lfm2_vl(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The other towers beside the text tower, whose filters mlx-lm wants as they are."""
    extra = {"vision_tower.patch.weight": JUNK, "multi_modal_projector.linear_1.weight": JUNK}
    return dict(weights) | extra


def lfm2_moe(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """w1 (gate), w2 (down), w3 (up), one key per expert."""
    names = {r"\.gate_proj\.": ".w1.", r"\.down_proj\.": ".w2.", r"\.up_proj\.": ".w3."}
    return _unstacked(_renamed(lfm2(weights, config), names), r"\.switch_mlp\.", ".experts.{}.")
