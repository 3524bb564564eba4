"""Seeded tiny models of the seven families, written as mlx-lm model folders without mlx-lm.

Every parameter is random, norms and biases included: a norm of ones or a bias of zeros hides a wrong rename, and a
model whose greedy output is one token makes every parity test pass. Values come from numpy's PCG64: a seed means
the same weights on every machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import errors

if TYPE_CHECKING:
    import mlx.core as mx  # loaded where arrays are made: a worker chooses its BLAS after importing this

LAYERS, HEADS, KV_HEADS, MLP, EOS = 3, 4, 2, 128, 1
MATRIX_STD, HEAD_STD, NORM_STD, BIAS_STD = 0.2, 0.5, 0.3, 0.3
DTYPES = ("float32", "bfloat16", "float16")
# name -> (bits, group size); "mixed" has overrides as well, see `_layer_quantization`.
QUANTS: dict[str, tuple[int, int]] = {"q4g32": (4, 32), "q4g64": (4, 64), "mixed": (4, 64)}


@dataclass(frozen=True)
class Recipe:
    """One tiny model. `norms`: norm keys per block, `attention_bias`/`mlp_bias`: which projections carry one.

    `qk_norm`: None, "head" (over one head) or "full" (over all heads of a token). `norm_mean`: gemma2 stores w - 1.
    `embedding_std`: with a tied head, large rows make a model repeat its input.
    """

    model_type: str
    head_dim: int = 64
    hidden: int = 64
    vocab: int = 101
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    attention_bias: tuple[str, ...] = ()
    mlp_bias: bool = False
    qk_norm: str | None = None
    fused_gate_up: bool = False
    tied: bool = True
    norm_mean: float = 1.0
    embedding_std: float = 0.15
    config: Mapping[str, Any] = field(default_factory=dict)


_GEMMA_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_GLM_NORMS = ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_QKV, _QKVO = ("q_proj", "k_proj", "v_proj"), ("q_proj", "k_proj", "v_proj", "o_proj")

RECIPES: dict[str, Recipe] = {
    "llama": Recipe("llama"),
    "mistral": Recipe("mistral", vocab=97, tied=False, config={"sliding_window": None, "rope_theta": 1e6}),
    # qwen2 takes head_dim from hidden / heads.
    "qwen2": Recipe("qwen2", hidden=128, head_dim=32, vocab=127, attention_bias=_QKV, config={"rope_theta": 1e6}),
    "qwen3": Recipe("qwen3", vocab=113, qk_norm="head", config={"rope_theta": 1e6}),
    "gemma2": Recipe(
        "gemma2",
        norms=_GEMMA_NORMS,
        norm_mean=0.0,
        embedding_std=0.03,
        config={
            "query_pre_attn_scalar": 64.0,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "olmo2": Recipe(
        "olmo2",
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qk_norm="full",
        tied=False,
        config={"rope_theta": 5e5},
    ),
    "glm4": Recipe(
        "glm4",
        head_dim=32,
        norms=_GLM_NORMS,
        attention_bias=_QKV,
        fused_gate_up=True,
        tied=False,
        config={"attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 1e4},
    ),
    "llama-untied": Recipe("llama", tied=False),
    "llama-bias": Recipe(
        "llama", attention_bias=_QKVO, mlp_bias=True, config={"attention_bias": True, "mlp_bias": True}
    ),
    "llama-rope-llama3": Recipe("llama", head_dim=32, config={"rope_scaling": _LLAMA3_ROPE, "rope_theta": 5e5}),
    "llama-rope-linear": Recipe("llama", config={"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
}
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "olmo2", "glm4")
VARIANTS = tuple(name for name in RECIPES if name not in FAMILIES)


def tiny_model(
    family: str, *, dtype: str = "float32", quant: str | None = None, seed: int = 0, root: Path | None = None
) -> Path:
    """A folder with config.json and model.safetensors; made once and found again by its content's key.

    family: a key of `RECIPES`. quant: None or a key of `QUANTS` (scales in `dtype`). root: where to put it,
    by default a folder for temporary files. Raises `errors.UnknownField` or `errors.InvalidValue`.
    """
    if family not in RECIPES:
        raise errors.UnknownField("tiny model family", family, RECIPES)
    if dtype not in DTYPES:
        raise errors.InvalidValue("dtype", dtype, DTYPES)
    if quant is not None and quant not in QUANTS:
        raise errors.InvalidValue("quant", quant, ("None", *QUANTS))
    source = Path(__file__).read_bytes()
    key = hashlib.sha256(json.dumps([family, dtype, quant, seed]).encode() + source).hexdigest()[:16]
    parent = root if root is not None else tiny_root()
    folder = parent / f"{family}-{dtype}-{quant or 'dense'}-{seed}-{key}"
    if not folder.is_dir():
        config, weights = build(family, dtype=dtype, quant=quant, seed=seed)
        parent.mkdir(parents=True, exist_ok=True)
        write_model(folder, config, weights)
    return folder


def tiny_root() -> Path:
    """Where tiny models and their plans are kept between runs: a folder for temporary files, one per user."""
    return Path(tempfile.gettempdir()) / f"frontier-tiny-{os.getuid()}"


def build(family: str, *, dtype: str, quant: str | None, seed: int) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """The config and the weights of a tiny model, by mlx-lm's names."""
    import mlx.core as mx

    recipe = RECIPES[family]
    mx_dtype = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}[dtype]
    weights = {name: mx.array(value).astype(mx_dtype) for name, value in _values(recipe, seed).items()}
    config = _config(recipe, dtype)
    if quant is not None:
        quantization: dict[str, Any] = {"group_size": QUANTS[quant][1], "bits": QUANTS[quant][0]}
        for name in [n for n in weights if _quantizable(n)]:
            path = name.removesuffix(".weight")
            layer = _layer_quantization(quant, path)
            if layer is None:
                quantization[path] = False
                continue
            if layer != QUANTS[quant]:
                quantization[path] = {"group_size": layer[1], "bits": layer[0]}
            packed, scales, biases = mx.quantize(weights.pop(name), group_size=layer[1], bits=layer[0])
            weights |= {name: packed, f"{path}.scales": scales, f"{path}.biases": biases}
        config["quantization"] = quantization
    return config, weights


def write_model(folder: Path, config: Mapping[str, Any], weights: dict[str, mx.array]) -> None:
    """Write a model folder, as `whole`."""
    import mlx.core as mx

    with whole(folder) as staging:
        mx.save_safetensors(str(staging / "model.safetensors"), weights, metadata={"format": "mlx"})
        (staging / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Make a folder in one step: it is there whole or not at all, also under two writers. Yields where to write."""
    staging = Path(tempfile.mkdtemp(prefix=".tiny-", dir=folder.parent))
    yield staging
    try:
        os.rename(staging, folder)
    except OSError:
        shutil.rmtree(staging)
        if not folder.is_dir():
            raise


def _config(recipe: Recipe, dtype: str) -> dict[str, Any]:
    return {
        "model_type": recipe.model_type,
        "hidden_size": recipe.hidden,
        "num_hidden_layers": LAYERS,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": recipe.head_dim,
        "rms_norm_eps": 1e-5,
        "vocab_size": recipe.vocab,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "tie_word_embeddings": recipe.tied,
        "torch_dtype": dtype,
        "eos_token_id": EOS,
        **recipe.config,
    }


def _values(r: Recipe, seed: int) -> dict[str, np.ndarray]:
    """Random values by name; matrices [out, in]."""
    rng = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}

    def draw(name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> None:
        values[name] = (mean + std * rng.standard_normal(shape)).astype(np.float32)

    draw("model.embed_tokens.weight", (r.vocab, r.hidden), r.embedding_std)
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS, "v_proj": KV_HEADS}
    for i in range(LAYERS):
        block = f"model.layers.{i}"
        for name, count in heads.items():
            draw(f"{block}.self_attn.{name}.weight", (count * r.head_dim, r.hidden), MATRIX_STD)
        draw(f"{block}.self_attn.o_proj.weight", (r.hidden, HEADS * r.head_dim), MATRIX_STD)
        for name in r.attention_bias:
            out = r.hidden if name == "o_proj" else heads[name] * r.head_dim
            draw(f"{block}.self_attn.{name}.bias", (out,), BIAS_STD)
        if r.qk_norm is not None:
            for name, count in (("q_norm", HEADS), ("k_norm", KV_HEADS)):
                width = r.head_dim * (count if r.qk_norm == "full" else 1)
                draw(f"{block}.self_attn.{name}.weight", (width,), NORM_STD, 1.0)
        shapes = {"gate_up_proj": (2 * MLP, r.hidden)} if r.fused_gate_up else {}
        shapes |= {} if r.fused_gate_up else {"gate_proj": (MLP, r.hidden), "up_proj": (MLP, r.hidden)}
        for name, shape in (shapes | {"down_proj": (r.hidden, MLP)}).items():
            draw(f"{block}.mlp.{name}.weight", shape, MATRIX_STD)
            if r.mlp_bias:
                draw(f"{block}.mlp.{name}.bias", shape[:1], BIAS_STD)
        for name in r.norms:
            draw(f"{block}.{name}.weight", (r.hidden,), NORM_STD, r.norm_mean)
    draw("model.norm.weight", (r.hidden,), NORM_STD, r.norm_mean)
    if not r.tied:
        draw("lm_head.weight", (r.vocab, r.hidden), HEAD_STD)
    return values


def _quantizable(name: str) -> bool:
    return name.endswith("_proj.weight") or name in ("model.embed_tokens.weight", "lm_head.weight")


def _layer_quantization(quant: str, path: str) -> tuple[int, int] | None:
    """(bits, group size) of a layer, None for dense. "mixed": 8 bit in block 1's MLP, a dense o_proj in block 2."""
    if quant == "mixed" and path.startswith("model.layers.1.mlp."):
        return (8, 32)
    if quant == "mixed" and path == "model.layers.2.self_attn.o_proj":
        return None
    return QUANTS[quant]
