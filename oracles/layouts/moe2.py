"""Hub layouts of the mixtures in oracles/recipes/moe2.py: mlx-lm's names and values -> those of the original hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))


def renamed(weights: Mapping[str, mx.array], *pairs: tuple[str, str]) -> Weights:
    out: Weights = {}
    for name, value in weights.items():
        for pattern, to in pairs:
            name = re.sub(pattern, to, name)
        out[name] = value
    return out


def unstacked(weights: Mapping[str, mx.array], stacked: str, each: str) -> Weights:
    """One key per expert. stacked: pattern of the stack, the rest of the name after it; each: with {} for the index."""
    out: Weights = {}
    for name, value in weights.items():
        if re.search(stacked, name):
            out.update({re.sub(stacked, each.format(e), name): value[e] for e in range(value.shape[0])})
        else:
            out[name] = value
    return out


def _layers(config: Mapping[str, Any]) -> range:
    return range(config["num_hidden_layers"])


def stacked(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """mlp.experts.<e> for the stack (qwen2_moe, qwen3_moe, mellum)."""
    return unstacked(weights, r"\.switch_mlp\.", ".experts.{}.")


def stacked_tied(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The same, with the head of a tied model stored a second time."""
    return stacked(weights, config) | {"lm_head.weight": weights["model.embed_tokens.weight"]}


def phimoe(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """block_sparse_moe.experts.<e>.w1 (gate), w2 (down), w3 (up)."""
    named = renamed(weights, (r"switch_mlp\.gate_proj", "E.w1"), (r"switch_mlp\.down_proj", "E.w2"))
    return unstacked(renamed(named, (r"switch_mlp\.up_proj", "E.w3")), r"\.E\.", ".experts.{}.")


def phixtral(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """moe.mlp.<e>.fc1 and fc2."""
    return unstacked(weights, r"\.switch_mlp\.", ".mlp.{}.")


def solar_open(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, and a multi-token prediction layer after the last one."""
    extra = f"model.layers.{config['num_hidden_layers']}."
    return stacked(weights, config) | {extra + "eh_proj.weight": JUNK, extra + "enorm.weight": JUNK}


def afmoe(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one under the same name, rotary buffers, a second copy of a tied head."""
    out = unstacked(weights, r"\.mlp\.experts\.", ".mlp.experts.{}.")
    out |= {f"model.layers.{l}.self_attn.rotary_emb.inv_freq": JUNK for l in _layers(config)}
    if config.get("tie_word_embeddings"):
        out["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return out


def exaone_moe(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one, the correction bias beside the router, multi-token prediction, a tied head's copy."""
    out = renamed(stacked(weights, config), (r"\.mlp\.gate\.e_score", ".mlp.e_score"))
    out["mtp.layers.0.mlp.gate.weight"] = JUNK
    if config.get("tie_word_embeddings"):
        out["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return out


def _interleaved(gate: mx.array, up: mx.array, axis: int) -> mx.array:
    """gate, up [.., n, ..] -> rows gate0, up0, gate1, up1, ... [.., 2n, ..]"""
    both = mx.stack([gate, up], axis=axis + 1)
    return mx.flatten(both, axis, axis + 1)


def gpt_oss(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Gate and up rows interleaved in one stack; packed in mxfp4 blocks of 32 where the experts are quantised."""
    out = {k: v for k, v in weights.items() if ".experts." not in k}
    for l in _layers(config):
        at = f"model.layers.{l}.mlp.experts."
        for part in ("weight", "scales", "bias"):
            if at + f"gate_proj.{part}" not in weights:
                continue
            down = weights[at + f"down_proj.{part}"]
            fused = _interleaved(weights[at + f"gate_proj.{part}"], weights[at + f"up_proj.{part}"], 1)
            for name, value in (("gate_up_proj", fused), ("down_proj", down)):
                if part == "bias":
                    out[at + name + "_bias"] = value
                elif at + "gate_proj.scales" not in weights:
                    out[at + name + ".weight"] = value
                elif part == "scales":
                    out[at + name + "_scales"] = value
                else:
                    out[at + name + "_blocks"] = mx.unflatten(value.view(mx.uint8), -1, (-1, 16))
    return out


def laguna(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """A bare router, its correction bias under the experts, experts one by one, a tied head's copy."""
    out = renamed(
        stacked(weights, config),
        (r"\.mlp\.gate\.proj\.", ".mlp.gate."),
        (r"\.mlp\.gate\.e_score", ".mlp.experts.e_score"),
    )
    if config.get("tie_word_embeddings"):
        out["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return out


def laguna_prefixed(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """A repacked checkpoint: every tensor under language_model."""
    return {"language_model." + k: v for k, v in laguna(weights, config).items()}


def mimo_v2_flash(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one and multi-token prediction layers."""
    return stacked(weights, config) | {"model.mtp.layers.0.eh_proj.weight": JUNK}


def step3p5(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Norms stored as w for 1 + w, mixtures outside of mlp, prediction layers after the last one."""
    out = renamed(
        weights,
        (r"\.mlp\.switch_mlp\.", ".moe."),
        (r"\.mlp\.gate\.gate\.", ".moe.gate."),
        (r"\.mlp\.gate\.router_bias", ".moe.router_bias"),
        (r"\.mlp\.share_expert\.", ".share_expert."),
    )
    out = {k: v - 1 if "norm" in k else v for k, v in out.items()}
    extra = f"model.layers.{config['num_hidden_layers']}."
    return out | {extra + "eh_proj.weight": JUNK, extra + "transformer.mtp.weight": JUNK}
