"""Original hub layouts: delta hybrids with a gate per channel (KDA)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from oracles.layouts.moe2 import JUNK, Weights, renamed, unstacked

_KIMI_EXPERTS = (
    (r"\.mlp\.(?=switch_mlp|gate\.|shared_experts|routed_expert)", ".block_sparse_moe."),
    (r"\.mlp\.e_score", ".block_sparse_moe.gate.e_score"),
    (r"switch_mlp\.gate_proj", "switch_mlp.w1"),
    (r"switch_mlp\.down_proj", "switch_mlp.w2"),
    (r"switch_mlp\.up_proj", "switch_mlp.w3"),
)
_STACK = r"\.switch_mlp\."


def _joined_heads(weights: Mapping[str, mx.array]) -> Weights:
    """kv_b_proj [H * (N + V), R] for embed_q [H, R, N] and unembed_out [H, V, R]."""
    out: Weights = {}
    for name, value in weights.items():
        if name.endswith(".embed_q.weight"):
            values = weights[name.replace("embed_q", "unembed_out")]
            both = mx.concatenate([value.swapaxes(-1, -2), values], axis=1)
            out[name.replace("embed_q", "kv_b_proj")] = both.flatten(0, 1)
        elif not name.endswith(".unembed_out.weight"):
            out[name] = value
    return out


def _channels_first(weights: Mapping[str, mx.array]) -> Weights:
    """Filters [C, 1, W] for [C, W, 1]."""
    return {k: v.swapaxes(1, 2) if "conv1d.weight" in k else v for k, v in weights.items()}


def _with_copy(out: Weights, weights: Mapping[str, mx.array], config: Mapping[str, Any], table: str) -> Weights:
    """A tied model's head, stored a second time."""
    if config.get("tie_word_embeddings"):
        out["lm_head.weight"] = weights[table]
    return out


def kimi_linear(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Mixtures under block_sparse_moe, experts as w1, w2, w3, filters channels first, a step bias per head and
    channel, one matrix for the latent's keys and values, prediction layers."""
    out = renamed(weights, *_KIMI_EXPERTS, (r"([qkv])_conv\.conv\.", r"\1_conv1d."))
    out = _channels_first(_joined_heads(unstacked(out, _STACK, ".experts.{}.")))
    heads = config["linear_attn_config"]["num_heads"]
    out = {k: v.reshape(heads, -1) if k.endswith("dt_bias") else v for k, v in out.items()}
    return _with_copy(out, weights, config, "model.embed_tokens.weight") | {"model.mtp.layers.0.eh_proj.weight": JUNK}


def bailing_moe_v3(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, filters channels first, one matrix for the latent's keys and values, prediction layers."""
    out = _channels_first(_joined_heads(unstacked(weights, _STACK, ".experts.{}.")))
    further = {f"model.layers.{config['num_hidden_layers']}.eh_proj.weight": JUNK}
    return _with_copy(out, weights, config, "model.word_embeddings.weight") | further


def kimi_k3(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """As kimi_linear, with the three projections and filters of a delta layer apart, other names of the residual
    mixes, decays with more heads than the model has, and another tower."""
    text = config.get("text_config", config)
    heads = text["linear_attn_config"]["num_heads"]
    inner = {k.removeprefix("language_model."): v for k, v in weights.items()}
    out: Weights = {}
    for name, value in inner.items():
        if re.search(r"\.qkv_(proj|conv)\.", name):
            for part, letter in zip(mx.split(value, 3), "qkv", strict=True):
                out[re.sub(r"qkv_(proj|conv)", rf"{letter}_\1", name)] = part
        elif name.endswith("A_log"):
            out[name] = mx.concatenate([value, value]).reshape(1, 1, 2 * heads, 1)
        else:
            out[name] = value
    out = renamed(out, (r"(_res)_(proj|norm)\.weight", r"\1.\2_weight"))
    out = kimi_linear(out, {**text, "tie_word_embeddings": False})
    out = _with_copy(out, inner, text, "model.embed_tokens.weight")
    out[f"model.layers.{text['num_hidden_layers']}.enorm.weight"] = JUNK
    if "text_config" not in config:
        return out
    return {f"language_model.{k}": v for k, v in out.items()} | {
        f"{tower}.weight": JUNK for tower in ("vision_tower.patch", "mm_projector.proj", "mtp.layers.0")
    }
