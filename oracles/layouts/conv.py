"""Original hub layouts: short convolutions, linear attention and other recurrences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from oracles.layouts.kda import bailing_moe_v3
from oracles.layouts.moe2 import JUNK, Weights, renamed, unstacked


def lfm2(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Filters [C, 1, W] (recurrent_gemma's too)."""
    return {k: v.swapaxes(1, 2) if re.search(r"conv(_1d)?\.weight$", k) else v for k, v in weights.items()}


def lfm2_vl(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The other towers beside the text tower, whose filters mlx-lm wants as they are."""
    extra = {"vision_tower.patch.weight": JUNK, "multi_modal_projector.linear_1.weight": JUNK}
    return dict(weights) | extra


def lfm2_moe(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """w1 (gate), w2 (down), w3 (up), one key per expert."""
    names = ((r"\.gate_proj\.", ".w1."), (r"\.down_proj\.", ".w2."), (r"\.up_proj\.", ".w3."))
    return unstacked(renamed(lfm2(weights, config), *names), r"\.switch_mlp\.", ".experts.{}.")


def rwkv7(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Parameters of heads in one row."""
    return {k: v.flatten() if re.search(r"\.(k_k|k_a|g_norm\.\w+)$", k) else v for k, v in weights.items()}


def bailing_hybrid(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """As bailing_moe_v3, with the router as `mlp.gate.weight`."""
    return renamed(bailing_moe_v3(weights, config), (r"\.mlp\.gate\.gate_proj\.", ".mlp.gate."))
