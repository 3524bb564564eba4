"""GGUF's llama family in mlx-lm's terms: config.json and parameter names.

Keys that are not read here are refused: an option that is dropped silently would give another model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.artifacts.gguf import GgufFile
from engine.errors import CorruptFile, UnsupportedConfig, WeightsMismatch

ARCHITECTURES = ("llama",)

# GGUF key below "llama." -> config.json key
REQUIRED = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OPTIONAL = {
    "context_length": "max_position_embeddings",
    "attention.head_count_kv": "num_key_value_heads",
    "rope.freq_base": "rope_theta",
    "attention.key_length": "head_dim",
}
CHECKED = (
    "vocab_size",
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "expert_count",
)

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def llama_config(gguf: GgufFile) -> dict[str, Any]:
    """config.json of a llama-family file. Raises UnsupportedConfig (another architecture or option), CorruptFile."""
    meta, path = gguf.metadata, gguf.path
    architecture = meta.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedConfig(
            f"{path}: architecture {architecture!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    own = {k.removeprefix("llama."): v for k, v in meta.items() if k.startswith("llama.")}
    unread = sorted(own.keys() - REQUIRED.keys() - OPTIONAL.keys() - set(CHECKED))
    if unread:
        raise UnsupportedConfig(f"{path}: llama.{unread[0]}={own[unread[0]]!r} cannot be honoured")
    missing = sorted(REQUIRED.keys() - own.keys())
    if missing:
        raise CorruptFile(path, f"no llama.{missing[0]}")
    config = {ours: _plain(own[theirs]) for theirs, ours in (OPTIONAL | REQUIRED).items() if theirs in own}
    for theirs, ours in (OPTIONAL | REQUIRED).items():
        if theirs in own and (isinstance(own[theirs], bool | list | str) or own[theirs] <= 0):
            raise UnsupportedConfig(f"{path}: llama.{theirs} (for {ours}) is not one positive number for all layers")
    if own.get("expert_count"):
        raise UnsupportedConfig(f"{path}: llama.expert_count={own['expert_count']}; supported: dense models")
    heads = config["num_attention_heads"]
    config.setdefault("num_key_value_heads", heads)
    config.setdefault("head_dim", config["hidden_size"] // heads)
    config.setdefault("rope_theta", 10000.0)
    for key in ("rope.dimension_count", "attention.value_length"):
        if own.get(key, config["head_dim"]) != config["head_dim"]:
            raise UnsupportedConfig(f"{path}: llama.{key}={own[key]}; supported: the head size {config['head_dim']}")
    scaling = own.get("rope.scaling.type", "none")
    if scaling == "linear":
        config["rope_scaling"] = {"type": "linear", "factor": _plain(own.get("rope.scaling.factor", 1.0))}
    elif scaling != "none":
        raise UnsupportedConfig(f"{path}: llama.rope.scaling.type={scaling!r}; supported: none, linear")
    stored = {t.name for t in gguf.tensors}
    vocab = next((t.shape[0] for t in gguf.tensors if t.name == "token_embd.weight"), 0)
    for theirs, ours in (("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")):
        if f"tokenizer.ggml.{theirs}" in meta:
            config[ours] = int(meta[f"tokenizer.ggml.{theirs}"])
    return config | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in stored,
        "torch_dtype": "float32",
    }


def llama_tensors(gguf: GgufFile, config: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """GGUF tensor name -> (mlx-lm parameter name, heads whose rows are to be reordered, else 0).

    Raises UnsupportedConfig for a tensor that this family does not have, WeightsMismatch for missing ones and shapes.
    """
    d, ff, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads, width = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    layer_shapes = {
        "attn_norm": (d,),
        "attn_q": (heads * width, d),
        "attn_k": (kv_heads * width, d),
        "attn_v": (kv_heads * width, d),
        "attn_output": (d, heads * width),
        "ffn_norm": (d,),
        "ffn_gate": (ff, d),
        "ffn_up": (ff, d),
        "ffn_down": (d, ff),
    }
    names = {"token_embd.weight": ("model.embed_tokens.weight", 0), "output_norm.weight": ("model.norm.weight", 0)}
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, d), "output_norm.weight": (d,)}
    if not config["tie_word_embeddings"]:
        names["output.weight"], shapes["output.weight"] = ("lm_head.weight", 0), (vocab, d)
    for i in range(config["num_hidden_layers"]):
        for theirs, ours in LAYER.items():
            name = f"blk.{i}.{theirs}.weight"
            reorder = {"attn_q": heads, "attn_k": kv_heads}.get(theirs, 0)
            names[name], shapes[name] = (f"model.layers.{i}.{ours}.weight", reorder), layer_shapes[theirs]
    stored = {t.name: t.shape for t in gguf.tensors}
    if "rope_freqs.weight" in stored:
        raise UnsupportedConfig(f"{gguf.path}: rope_freqs.weight (scaled rope) is not supported")
    wrong = [f"{n} {stored[n]} not {shapes[n]}" for n in shapes if n in stored and stored[n] != shapes[n]]
    if wrong or stored.keys() != names.keys():
        raise WeightsMismatch(gguf.path, names.keys() - stored.keys(), stored.keys() - names.keys(), wrong)
    return names


def _plain(value: Any) -> Any:
    """A JSON number; fp32 values get their shortest decimal (1e-05, not 9.999999747378752e-06: the same fp32)."""
    return float(str(np.float32(value))) if isinstance(value, float) else value
