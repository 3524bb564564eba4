"""The hub layouts of group moe1: one matrix an expert, fused rows, and keys that mlx-lm's `sanitize` drops.

Letters: X experts, M hidden dimension of an expert, D model dimension, H query heads, K key/value heads, E head dim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Arrays = dict[str, mx.array]
_MIXTRAL_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def _one_by_one(weights: Mapping[str, mx.array], stack: str, names: Mapping[str, str] | None = None) -> Arrays:
    """`<stack>.<name>.weight` [X, out, in] becomes X keys `experts.<e>.<new name>.weight` [out, in]."""
    stacked = re.compile(rf"(.*\.){stack}\.(gate_proj|up_proj|down_proj)\.weight")
    out: Arrays = {}
    for key, value in weights.items():
        found = stacked.fullmatch(key)
        if found is None or value.ndim != 3:
            out[key] = value
            continue
        name = (names or {}).get(found[2], found[2])
        out |= {f"{found[1]}experts.{e}.{name}.weight": value[e] for e in range(value.shape[0])}
    return out


def klear(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """The stack has the name of the single experts' list."""
    return _one_by_one(weights, "experts")


def switch_mlp(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """deepseek, olmoe, hunyuan with experts."""
    return _one_by_one(weights, "switch_mlp")


def bailing(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """The router is `mlp.gate.weight`; a tied model still holds its head."""
    out = {k.replace("mlp.gate.gate_proj.", "mlp.gate."): v for k, v in _one_by_one(weights, "switch_mlp").items()}
    return _with_head(out, "model.word_embeddings.weight") if config["tie_word_embeddings"] else out


def dbrx(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """All experts of a layer in one matrix [X*M, D] each; w2 is transposed."""
    experts = int(config["ffn_config"]["moe_num_experts"])
    out = {k: v for k, v in weights.items() if ".experts." not in k}
    for layer in range(int(config["n_layers"])):
        prefix = f"transformer.blocks.{layer}.ffn.experts"
        for name in ("w1", "v1", "w2"):
            each = [weights[f"{prefix}.{e}.{name}.weight"] for e in range(experts)]
            out[f"{prefix}.mlp.{name}"] = mx.concatenate([w.T if name == "w2" else w for w in each], axis=0)
    return out


def dots1(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """The stack is named `experts`; rotary buffers, and the head of a tied model, are in the file and dropped."""
    out = _one_by_one(weights, "experts")
    out["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.ones((8,))
    return _with_head(out, "model.embed_tokens.weight") if config["tie_word_embeddings"] else out


def ernie(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """Multi-token prediction blocks and the routers' correction biases are dropped."""
    out = _one_by_one(weights, "switch_mlp")
    dim = int(config["hidden_size"])
    last = int(config["num_hidden_layers"]) - 1
    out[f"model.layers.{last}.mlp.moe_statics.e_score_correction_bias"] = mx.ones((1, int(config["moe_num_experts"])))
    for key in ("mtp_block.0.input_layernorm", "mtp_hidden_norm.0", "mtp_emb_norm.0"):
        out[f"model.{key}.weight"] = mx.ones((dim,))
    out["model.mtp_linear_proj.0.weight"] = mx.ones((dim, 2 * dim))
    return out


def glm(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """The layer after the last one predicts further tokens, and is dropped."""
    out = _one_by_one(weights, "switch_mlp")
    extra, dim = f"model.layers.{config['num_hidden_layers']}", int(config["hidden_size"])
    out |= {f"{extra}.{name}.weight": mx.ones((dim,)) for name in ("enorm", "hnorm", "shared_head.norm")}
    out[f"{extra}.eh_proj.weight"] = mx.ones((dim, 2 * dim))
    out[f"{extra}.mlp.experts.0.gate_proj.weight"] = mx.ones((dim, dim))
    return out


def granite(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """Gate and up of all experts in one array [X, 2M, D]; a tied model still holds its head."""
    out: Arrays = {}
    for key, value in weights.items():
        if key.endswith("switch_mlp.gate_proj.weight"):
            both = [value, weights[key.replace("gate_proj", "up_proj")]]
            out[key.replace("switch_mlp.gate_proj", "input_linear")] = mx.concatenate(both, axis=1)
        elif not key.endswith("switch_mlp.up_proj.weight"):
            out[key.replace("switch_mlp.down_proj", "output_linear")] = value
    return _with_head(out, "model.embed_tokens.weight") if config["tie_word_embeddings"] else out


def hunyuan_fused(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """q, k and v interleaved by key/value head in one matrix; up above gate in another."""
    heads, kv_heads, dim = (int(config[k]) for k in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
    out: Arrays = {}
    for key, value in weights.items():
        if key.endswith("q_proj.weight"):
            parts = [weights[key.replace("q_proj", name)] for name in ("q_proj", "k_proj", "v_proj")]
            split = [p.reshape(kv_heads, -1, dim // heads, dim) for p in parts]  # [K, H/K or 1, E, D]
            out[key.replace("q_proj", "qkv_proj")] = mx.concatenate(split, axis=1).reshape(-1, dim)
        elif key.endswith("up_proj.weight"):
            gate = weights[key.replace("up_proj", "gate_proj")]
            out[key.replace("up_proj", "gate_and_up_proj")] = mx.concatenate([value, gate], axis=0)
        elif not key.endswith(("k_proj.weight", "v_proj.weight", "gate_proj.weight")):
            out[key] = value
    return out


def minimax(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """Experts with mixtral's matrix names."""
    return _one_by_one(weights, "switch_mlp", _MIXTRAL_NAMES)


def mixtral(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Arrays:
    """w1, w2 and w3 of each expert; a tied model still holds its head."""
    out = _one_by_one(weights, "switch_mlp", _MIXTRAL_NAMES)
    return _with_head(out, "model.embed_tokens.weight") if config.get("tie_word_embeddings") else out


def _with_head(weights: Arrays, embedding: str) -> Arrays:
    return weights | {"lm_head.weight": weights[embedding]}
