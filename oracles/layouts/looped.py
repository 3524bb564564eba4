"""Original checkpoint layouts of the group "looped": what mlx-lm's `sanitize` finds there and drops or cuts.

Weights are arrays by name; shapes as in mlx-lm's layout unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]


def with_rotary_buffers(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The rotary frequencies that older exports of transformers store in every layer."""
    layers = range(int(config["num_hidden_layers"]))
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": mx.arange(8, dtype=mx.float32) for i in layers}
    return {**weights, **buffers}


def with_tied_head(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """A tied head, stored a second time."""
    return {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}


def with_rotary_buffers_and_tied_head(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    return with_tied_head(with_rotary_buffers(weights, config), config)


def talkie(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Rotary tables of the whole model."""
    table = mx.ones((int(config.get("max_position_embeddings", 64)), int(config["head_dim"]) // 2))
    return {**weights, "model.cos": table, "model.sin": table}


def gemma3n(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The towers of the multimodal checkpoint."""
    towers = ("vision_tower.timm_model.stem.weight", "audio_tower.conformer.0.weight", "embed_vision.embedding.weight")
    return {**weights, **{f"model.{name}": mx.ones((4, 4)) for name in (*towers, "embed_audio.embedding.weight")}}


def gemma4_text(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Gate and up of the experts in one array, keys and values of layers that share another's, clipping bounds."""
    out: Weights = {}
    for key, value in weights.items():
        base, found, name = key.partition(".experts.switch_glu.")
        if not found:
            out[key] = value
        elif name == "down_proj.weight":
            out[f"{base}.experts.down_proj"] = value
        elif name == "gate_proj.weight":
            up = weights[f"{base}.experts.switch_glu.up_proj.weight"]
            out[f"{base}.experts.gate_up_proj"] = mx.concatenate([value, up], axis=-2)  # [experts, 2 * hidden, dim]
    layers = int(config["num_hidden_layers"])
    dim, kv_heads = int(config["hidden_size"]), int(config["num_key_value_heads"])
    for i in range(layers - int(config.get("num_kv_shared_layers", 20)), layers):
        attn = f"model.layers.{i}.self_attn"
        out |= {f"{attn}.{name}.weight": mx.ones((kv_heads * 16, dim)) for name in ("k_proj", "v_proj")}
        out[f"{attn}.k_norm.weight"] = mx.ones((16,))
    for name in ("input_min", "input_max", "output_min", "output_max"):
        out[f"model.layers.0.mlp.gate_proj.{name}"] = mx.array(1.0)
    out["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.arange(8, dtype=mx.float32)
    return out
