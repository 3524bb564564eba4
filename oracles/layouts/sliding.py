"""Hub layouts: sliding-window and chunked families, and the text towers of thin vision wrappers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]
Config = Mapping[str, Any]


def llama(weights: Weights, config: Config) -> Weights:
    """The same names, with rotary buffers beside them and, where the head is tied, a copy of it."""
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": mx.ones((8,)) for i in _layers(config)}
    return tied_head({**weights, **buffers}, config)


def tied_head(weights: Weights, config: Config) -> Weights:
    """A tied head that the checkpoint stores all the same."""
    if not config["tie_word_embeddings"]:
        return weights
    return {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}


def gemma3(weights: Weights, config: Config) -> Weights:
    """Both towers and the projector at the top."""
    return weights | _vision("vision_tower.vision_model") | _vision("multi_modal_projector")


def gemma4(weights: Weights, config: Config) -> Weights:
    """Everything under `model.`; gate and up of the experts stacked; shared layers keep projections nobody reads."""
    text = config["text_config"]
    out = _renamed(weights, "language_model.model.", "model.language_model.")
    for i in range(text["num_hidden_layers"]):
        experts = f"model.language_model.layers.{i}.experts"
        if f"{experts}.switch_glu.gate_proj.weight" in out:
            gate, up, down = (out.pop(f"{experts}.switch_glu.{k}_proj.weight") for k in ("gate", "up", "down"))
            out[f"{experts}.gate_up_proj"] = mx.concatenate([gate, up], axis=-2)
            out[f"{experts}.down_proj"] = down
        if i >= text["num_hidden_layers"] - text["num_kv_shared_layers"]:
            attn = f"model.language_model.layers.{i}.self_attn"
            out |= {f"{attn}.{k}.weight": mx.ones((16,)) for k in ("k_proj", "v_proj", "k_norm")}
        out[f"model.language_model.layers.{i}.self_attn.rotary_emb.inv_freq"] = mx.ones((8,))
    for tower in ("vision_tower", "audio_tower", "embed_audio", "embed_vision", "vision_embedder"):
        out |= _vision(f"model.{tower}")
    return out


def llama4(weights: Weights, config: Config) -> Weights:
    """Experts as one array [experts, in, out], gate beside up."""
    out = dict(weights)
    for i in range(config["text_config"]["num_hidden_layers"]):
        experts = f"language_model.model.layers.{i}.feed_forward.experts"
        if f"{experts}.gate_proj.weight" in out:
            _stack_experts(out, experts, experts)
    return out | _vision("vision_model.model") | _vision("multi_modal_projector")


def mistral3(weights: Weights, config: Config) -> Weights:
    """The newer form: text tower and vision tower under `model.`, the head at the top."""
    out = _renamed(weights, "language_model.model.", "model.language_model.")
    out = _renamed(out, "language_model.", "")
    if config["text_config"].get("tie_word_embeddings"):
        out["lm_head.weight"] = out["model.language_model.embed_tokens.weight"]
    return out | _vision("model.vision_tower") | _vision("model.multi_modal_projector")


def llava(weights: Weights, config: Config) -> Weights:
    """The older form: towers side by side at the top, rotary buffers in the text tower."""
    buffer = {"language_model.model.layers.0.self_attn.rotary_emb.inv_freq": mx.ones((8,))}
    return weights | buffer | _vision("vision_tower.vision_model") | _vision("multi_modal_projector")


def pixtral(weights: Weights, config: Config) -> Weights:
    """Both towers and the projector at the top."""
    return weights | _vision("vision_tower") | _vision("multi_modal_projector")


def muse_glimmer(weights: Weights, config: Config) -> Weights:
    """Flat configs: `language_model.model.` and `language_model.lm_head.`; nested ones: `model.language_model.`."""
    if "text_config" in config:
        out = _renamed(weights, "model.", "model.language_model.")
    else:
        out = {f"language_model.{name}": value for name, value in weights.items()}
    return out | _vision("vision_tower") | _vision("vision_adapter") | _vision("vision_projection")


def qwen_vl(weights: Weights, config: Config) -> Weights:
    """The older form: the text tower's names are a plain model's, `visual` beside it."""
    return _renamed(weights, "language_model.", "") | _vision("visual")


def qwen_vl_nested(weights: Weights, config: Config) -> Weights:
    """The newer form: both towers under `model.`, the head at the top."""
    out = _renamed(weights, "language_model.model.", "model.language_model.")
    return _renamed(out, "language_model.", "") | _vision("model.visual")


def qwen3_vl_moe(weights: Weights, config: Config) -> Weights:
    """As `qwen_vl_nested`, with experts as one array [experts, in, out], gate beside up."""
    out = qwen_vl_nested(weights, config)
    for i in range(config["text_config"]["num_hidden_layers"]):
        mlp = f"model.language_model.layers.{i}.mlp"
        if f"{mlp}.switch_mlp.gate_proj.weight" in out:
            _stack_experts(out, f"{mlp}.switch_mlp", f"{mlp}.experts")
    return out


def spark2_5(weights: Weights, config: Config) -> Weights:
    """Rotary buffers, a stored tied head; with an untied head, the embedding by its usual name."""
    out = weights | {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": mx.ones((8,)) for i in _layers(config)}
    if config["tie_word_embeddings"]:
        return out | {"lm_head.weight": out["model.embedding.weight"]}
    return _renamed(out, "model.embedding.", "model.embed_tokens.")


def _layers(config: Config) -> range:
    return range(config["num_hidden_layers"])


def _renamed(weights: Weights, old: str, new: str) -> Weights:
    return {new + k.removeprefix(old) if k.startswith(old) else k: v for k, v in weights.items()}


def _stack_experts(weights: Weights, old: str, new: str) -> None:
    """Per-projection [experts, out, in] -> gate_up_proj [experts, in, 2 out] and down_proj [experts, in, out]."""
    gate, up, down = (weights.pop(f"{old}.{k}_proj.weight") for k in ("gate", "up", "down"))
    weights[f"{new}.gate_up_proj"] = mx.concatenate([gate, up], axis=1).swapaxes(1, 2)
    weights[f"{new}.down_proj"] = down.swapaxes(1, 2)


def _vision(prefix: str) -> Weights:
    """A vision weight that the text tower's loader drops."""
    return {f"{prefix}.layers.0.proj.weight": mx.ones((4, 4))}
