"""Hub layouts of dense families: mlx-lm's names -> the names (and shapes) of the original checkpoints.

Every function takes the weights by mlx-lm's names and the config and returns a new mapping. Buffers that PyTorch saves
beside the parameters are there too, with values that would change the output if they were used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Weights = Mapping[str, Any]


def _layers(weights: Weights, prefix: str) -> list[str]:
    """The indices of the layers under `prefix`, as they are in the names."""
    return sorted({name.removeprefix(prefix).split(".")[0] for name in weights if name.startswith(prefix)})


def _buffers(weights: Weights, prefix: str, suffixes: tuple[str, ...], source: str) -> dict[str, Any]:
    """One junk array a layer and suffix."""
    return {f"{prefix}{i}.{suffix}": weights[source][:1] for i in _layers(weights, prefix) for suffix in suffixes}


def _tied_head(weights: Weights, config: Mapping[str, Any], tied: bool) -> dict[str, Any]:
    """The copy of the embedding that transformers may save as the head; its rows are in reverse here."""
    return {"lm_head.weight": weights["model.embed_tokens.weight"][::-1]} if tied else {}


def gpt2(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """Conv1D stores [in, out]; causal masks are saved as h.<i>.attn.bias."""
    named = {}
    for name, value in weights.items():
        linear = name.endswith(".weight") and (".c_" in name)
        named[name.removeprefix("model.")] = value.T if linear else value
    return {**named, **_buffers(named, "h.", ("attn.bias",), "wpe.weight")}


def gpt_neox(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """Layers are gpt_neox.layers.<i>, the head stands outside; masks and rotary buffers are saved."""
    named = {}
    for name, value in weights.items():
        bare = name.removeprefix("model.")
        if bare.startswith("h."):
            bare = "layers." + bare.removeprefix("h.")
        named[bare if bare.startswith("embed_out.") else f"gpt_neox.{bare}"] = value
    buffers = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")
    return {**named, **_buffers(named, "gpt_neox.layers.", buffers, "gpt_neox.final_layer_norm.weight")}


def gptj(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """transformer.* for model.*; masks are saved."""
    named = {
        f"transformer.{name.removeprefix('model.')}" if name.startswith("model.") else name: value
        for name, value in weights.items()
    }
    buffers = ("attn.bias", "attn.masked_bias")
    return {**named, **_buffers(named, "transformer.h.", buffers, "transformer.ln_f.weight")}


def lille(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary tables are saved."""
    buffers = _buffers(weights, "transformer.layers.", ("attention.rotary_emb.freqs",), "transformer.norm.weight")
    return {**weights, "transformer.rotary_emb.freqs": weights["transformer.norm.weight"][:1], **buffers}


def rotary(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary tables are saved in every attention."""
    source = "model.embed_tokens.weight"
    return {**weights, **_buffers(weights, "model.layers.", ("self_attn.rotary_emb.inv_freq",), source)}


def tied_head(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """A tied model has its head saved all the same."""
    return {**weights, **_tied_head(weights, config, bool(config.get("tie_word_embeddings", False)))}


def qwen2(weights: Weights, config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary tables, and the head of a tied model."""
    return {**rotary(weights, config), **_tied_head(weights, config, bool(config.get("tie_word_embeddings", True)))}
