"""Original hub layouts: state-space models and their hybrids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]
JUNK = mx.zeros((4,))


def hub(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Filters as [channels, 1, width]."""
    return {k: v.moveaxis(1, 2) if "conv1d.weight" in k else v for k, v in weights.items()}


def falcon_h1(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """The factors of the config are not in the weights yet."""
    gate, down = config["mlp_multipliers"]
    factors = {
        "embed_tokens": config["embedding_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "gate_proj": gate,
        "down_proj": down,
    }
    inner = config["mamba_n_heads"] * config["mamba_d_head"]
    shared = config["mamba_n_groups"] * config["mamba_d_state"]
    widths = (inner, inner, shared, shared, config["mamba_n_heads"])
    rows = [f for f, width in zip(config["ssm_multipliers"], widths, strict=True) for _ in range(width)]
    by_row = mx.array(rows)[:, None] * config["ssm_in_multiplier"]
    out: Weights = {}
    for name, value in hub(weights, config).items():
        last, _, kind = name.rpartition(".")
        last = last.rpartition(".")[2]
        if kind == "weight" and last in factors:
            value = value / factors[last]
        out[name] = value / by_row if name.endswith("in_proj.weight") else value
    return out


def granitemoehybrid(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Gates and ups in one array, of the experts or, where there are none, of the MLP; a tied head's copy."""
    sparse = bool(config["num_local_experts"])
    at, to, axis = (
        (".block_sparse_moe.switch_mlp.", ".block_sparse_moe.", 1) if sparse else (".mlp.", ".shared_mlp.", 0)
    )
    out = {k: v for k, v in hub(weights, config).items() if at not in k}
    for layer in range(config["num_hidden_layers"]):
        old, new = f"model.layers.{layer}{at}", f"model.layers.{layer}{to}"
        both = [weights[f"{old}{name}_proj.weight"] for name in ("gate", "up")]
        out[f"{new}input_linear.weight"] = mx.concatenate(both, axis=axis)
        out[f"{new}output_linear.weight"] = weights[f"{old}down_proj.weight"]
    return out if "lm_head.weight" in out else out | {"lm_head.weight": out["model.embed_tokens.weight"]}


def _unstacked(weights: Mapping[str, mx.array], at: str, names: Mapping[str, str]) -> Weights:
    """`<at>.switch_mlp.<name>` as `<at>.experts.<e>.<new name>`."""
    out: Weights = {}
    for key, value in weights.items():
        match = re.fullmatch(rf"(.*\.{at})\.switch_mlp\.(\w+)\.weight", key)
        if match is None:
            out[key] = value
        else:
            new = f"{match[1]}.experts.{{}}.{names.get(match[2], match[2])}.weight"
            out |= {new.format(e): value[e] for e in range(value.shape[0])}
    return out


def jamba(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one; a tied head's copy."""
    out = _unstacked(hub(weights, config), "feed_forward", {})
    return out | {"lm_head.weight": out["model.embed_tokens.weight"]}


def nemotron_h(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Experts one by one under other names; layers that predict further tokens."""
    return _unstacked(hub(weights, config), "mixer", {"fc1": "up_proj", "fc2": "down_proj"}) | {"mtp.norm.weight": JUNK}
