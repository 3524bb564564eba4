"""Hub layouts of latent attention: mlx-lm's names and values -> those of the original hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))


def _experts(weights: Mapping[str, mx.array]) -> Weights:
    """mlp.experts.<e> for the stack."""
    out: Weights = {}
    for name, value in weights.items():
        if ".switch_mlp." in name:
            out |= {name.replace(".switch_mlp.", f".experts.{e}."): value[e] for e in range(value.shape[0])}
        else:
            out[name] = value
    return out


def _joined_heads(weights: Mapping[str, mx.array]) -> Weights:
    """One kv_b_proj [H * (N + V), R] of embed_q [H, R, N] and unembed_out [H, V, R]."""
    out = {k: v for k, v in weights.items() if not re.search(r"\.(embed_q|unembed_out)\.", k)}
    for name in weights:
        if name.endswith(".embed_q.weight"):
            at = name.removesuffix("embed_q.weight")
            heads = mx.concatenate([weights[name].swapaxes(-1, -2), weights[f"{at}unembed_out.weight"]], axis=1)
            out[f"{at}kv_b_proj.weight"] = heads.flatten(0, 1)
    return out


def deepseek_v3(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, one projection to keys and values, rotary buffers."""
    return _joined_heads(_experts(weights)) | {"model.layers.0.self_attn.rotary_emb.inv_freq": JUNK}
