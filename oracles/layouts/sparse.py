"""Hub layouts of the models in oracles/recipes/sparse.py: mlx-lm's names and values -> those of the original hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from oracles.layouts import latent

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))
_M3_JUNK = ("vision_tower.patch_embed.weight", "multi_modal_projector.linear.weight", "patch_merge_mlp.fc.weight")
_M3_EXPERTS = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def _unstacked(weights: Mapping[str, mx.array], stacked: str, each: str) -> Weights:
    """One key per expert. stacked: pattern of the stack, the rest of the name after it; each: with {} for the index."""
    out: Weights = {}
    for name, value in weights.items():
        if re.search(stacked, name):
            out.update({re.sub(stacked, each.format(e), name): value[e] for e in range(value.shape[0])})
        else:
            out[name] = value
    return out


def deepseek_v32(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """deepseek_v3's layout, and two layers after the last one that predict further tokens."""
    further = [f"model.layers.{config['num_hidden_layers'] + i}.eh_proj.weight" for i in range(2)]
    hub = latent.deepseek_v3(weights, config) | dict.fromkeys(further, JUNK)
    return {name: value for name, value in hub.items() if "rotary_emb" not in name}  # mlx-lm refuses them here


def minimax_m3_vl(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one as w1, w2, w3; dense layers' MLPs under block_sparse_moe too; other towers beside the text."""
    out = {re.sub(r"\.mlp\.", ".block_sparse_moe.", name): value for name, value in weights.items()}
    for old, new in _M3_EXPERTS.items():
        out = _unstacked(out, rf"\.switch_mlp\.{old}\.", f".experts.{{}}.{new}.")
    return out | dict.fromkeys(_M3_JUNK, JUNK)


def minimax_m3_vl_folded(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The shared expert as the last of the stack, gate and up in one array, a tied head's copy."""
    out: Weights = {}
    for name, value in weights.items():
        if ".switch_mlp." in name:
            shared = weights[name.replace(".switch_mlp.", ".shared_experts.")]
            out[name] = mx.concatenate([value, shared[None]])
        elif ".shared_experts." not in name:
            out[name] = value
    for name in [name for name in out if ".switch_mlp.gate_proj." in name]:
        up = out.pop(name.replace("gate_proj", "up_proj"))
        out[name.replace("gate_proj", "gate_up_proj")] = mx.concatenate([out.pop(name), up], axis=-2)
    return out | {"language_model.lm_head.weight": weights["language_model.model.embed_tokens.weight"]}


# What mlx-lm's names become, one after the other.
_V41_NAMES = (
    (r"\.gate\.e_score_correction_bias$", ".gate.bias"),
    (r"^lm_head\.", "head."),
    (r"^model\.embed_tokens\.", "embed."),
    (r"^model\.", ""),
    (r"\.self_attn\.", ".attn."),
    (r"\.mlp\.", ".ffn."),
    (r"\.input_layernorm\.", ".attn_norm."),
    (r"\.post_attention_layernorm\.", ".ffn_norm."),
    (r"\.(attn|ffn)_hc\.", r".hc_\1_"),
    (r"\.sinks$", ".attn_sink"),
    (r"\.([qo])_([ab])_proj\.", r".w\1_\2."),
    (r"\.q_a_norm\.", ".q_norm."),
    (r"\.compressor\.kv_norm\.", ".compressor.norm."),
    (r"\.indexer\.k_proj\.", ".indexer.wk."),
    (r"\.shared_experts\.gate_proj\.", ".shared_experts.w1."),
    (r"\.shared_experts\.down_proj\.", ".shared_experts.w2."),
    (r"\.shared_experts\.up_proj\.", ".shared_experts.w3."),
    (r"\.kv_proj\.", ".wkv."),
    (r"\.compressor\.gate_proj\.", ".compressor.wgate."),
)
_V41_JUNK = ("vision.patch.weight", "aligner.weight", "image_newline", "mtp.0.norm.weight", "layers.0.engram.table")


def deepseek_v41(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Names of its own, experts one by one as w1, w2, w3, the output's first map in one matrix, other modules."""
    out: Weights = {}
    for name, value in weights.items():
        short = name
        for pattern, to in _V41_NAMES:
            short = re.sub(pattern, to, short)
        out[short] = value.flatten(0, 1) if name.endswith(".o_a_proj.weight") else value
    for old, new in _M3_EXPERTS.items():
        out = _unstacked(out, rf"\.experts\.switch_mlp\.{old}\.", f".experts.{{}}.{new}.")
    return out | dict.fromkeys((*_V41_JUNK, "layers.0.ffn.gate.bias_vl"), JUNK)
