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


def experts(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one (deepseek_v2)."""
    return _experts(weights)


def deepseek_v3(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, one projection to keys and values, rotary buffers."""
    return _joined_heads(_experts(weights)) | {"model.layers.0.self_attn.rotary_emb.inv_freq": JUNK}


def glm4_moe_lite(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, one projection to keys and values, a layer that predicts further tokens."""
    extra = f"model.layers.{config['num_hidden_layers']}."
    return _joined_heads(_experts(weights)) | {f"{extra}eh_proj.weight": JUNK, f"{extra}enorm.weight": JUNK}


def kimi_k25(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """deepseek_v3 under language_model, and a vision tower with its projector."""
    others = {"vision_tower.a.weight": JUNK, "mm_projector.b.weight": JUNK}
    return _joined_heads(_experts(weights)) | others


def kimi_vl(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, a vision tower and its projector; mlx-lm takes keys and values in its own names only."""
    others = {"vision_tower.a.weight": JUNK, "multi_modal_projector.b.weight": JUNK}
    return _experts(weights) | others | {"language_model.model.layers.0.self_attn.rotary_emb.inv_freq": JUNK}


def longcat_flash(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, one projection to keys and values, layers that predict further tokens."""
    return _joined_heads(_experts(weights)) | {"model.mtp.layers.0.eh_proj.weight": JUNK}


def longcat_flash_ngram(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The same, with the token embedding under its usual name."""
    words = {k.replace("ngram_embeddings.word_embeddings", "embed_tokens"): v for k, v in weights.items()}
    return longcat_flash(words, config)


def mistral4(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts in one stack, gate above up, and one projection to keys and values."""
    out: Weights = {}
    for name, value in weights.items():
        at, _, part = name.partition(".switch_mlp.")
        if part == "gate_proj.weight":
            up = weights[f"{at}.switch_mlp.up_proj.weight"]
            out[f"{at}.experts.gate_up_proj"] = mx.concatenate([value, up], axis=1)
        elif part == "down_proj.weight":
            out[f"{at}.experts.down_proj"] = value
        elif not part:
            out[name] = value
    return _joined_heads(out)


def mistral4_one_by_one(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, one projection to keys and values, scales of activations that nobody reads."""
    return _joined_heads(_experts(weights)) | {"model.layers.0.self_attn.o_proj.activation_scale": JUNK}


def mistral3(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """mistral4 under model.language_model with the head at the top, and a vision tower."""
    inner = {k.removeprefix("language_model."): v for k, v in weights.items()}
    named = {k.replace("model.", "model.language_model.", 1): v for k, v in mistral4(inner, config).items()}
    return named | {"model.vision_tower.a.weight": JUNK, "model.multi_modal_projector.b.weight": JUNK}
