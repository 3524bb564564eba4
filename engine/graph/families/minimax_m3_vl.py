"""minimax_m3_vl: a vision model's text tower; layers that attend the blocks which an indexer picks, and, behind dense
layers, mixtures with a clipped swiglu and a shared expert."""

from dataclasses import replace
from typing import Any

import mlx.core as mx

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.minimax import EXPERT_NAMES
from engine.graph.families.towers import text_tower
from engine.graph.indexed_blocks import IndexedBlocksSpec
from engine.graph.renames import Arrays, Drop, Rename, Split, stacked
from engine.graph.spec import ArchSpec, RouterSpec

# The published config nests these; transformers 5 writes them flat.
_NESTED = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
    "sparse_attention_freq": "sparse_attention_freq",
}


def _mxfp8(arrays: Arrays) -> Arrays:
    """8-bit floats with a scale per 32 values are MLX's mxfp8 once four of them are read as a word."""
    end, made = ".weight_scale_inv", dict(arrays)
    for name in [key.removesuffix(end) for key in arrays if key.endswith(end)]:
        made[f"{name}.scales"] = made.pop(name + end)
        made[f"{name}.weight"] = made[f"{name}.weight"].view(mx.uint32)
    return made


def _halves(fused: mx.array) -> list[mx.array]:
    return [mx.contiguous(half) for half in mx.split(fused, 2, axis=-2)]


def _unfolded(experts: int) -> Any:
    """Conversions that count the shared expert as one more of the stacked ones give it back."""

    def rule(arrays: Arrays) -> Arrays:
        made: Arrays = {}
        for key, array in arrays.items():
            folded = ".block_sparse_moe.switch_mlp." in key and array.shape[0] == experts + 1
            made[key] = mx.contiguous(array[:experts]) if folded else array
            if folded:
                made[key.replace(".switch_mlp.", ".shared_experts.")] = mx.contiguous(array[experts])
        return made

    return rule


def _rules(experts: int) -> tuple[Any, ...]:
    fused = r"(.*\.block_sparse_moe\.(?:switch_mlp|shared_experts))\.gate_up_proj\.(\w+)"
    return (
        Drop((r"^patch_merge_mlp\.",)),
        _mxfp8,
        Rename(r"\.block_sparse_moe\.(gate_proj|up_proj|down_proj)\.", r".mlp.\1."),  # of dense layers
        _unfolded(experts),
        Split(fused, (r"\1.gate_proj.\2", r"\1.up_proj.\2"), _halves),
        *stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES),
    )


def _read(config: Config) -> Config:
    """The text config with what it nests at the top of it."""
    config = config.inner("text_config", **DEFAULTS["minimax_m3_vl"])
    if config.get("sparse_attention_config"):
        nested = config.inner("sparse_attention_config")
        nested.choice("sparse_score_type", ("max",), "max")
        if nested.count("sparse_init_block", 0):
            raise nested.invalid("sparse_init_block", nested["sparse_init_block"], "0")
        config = config.replaced(**{flat: nested[key] for flat, key in _NESTED.items() if key in nested})
        if not nested.flag("use_sparse_attention", True):
            config = config.replaced(index_block_size=None)
    if config.get("rope_parameters"):
        rope = config.inner("rope_parameters")
        config = config.replaced(**{key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope})
    return config


def _each(config: Config, words: str, plain: str, freq: str) -> list[bool]:
    """Which layers are not of the `plain` kind: by a list of words, a list of flags, or all."""
    if config.get(words) is not None:
        return [word != plain for word in config.each(words)]
    return [bool(flag) for flag in config.each(freq, [True] * config.positive("num_hidden_layers"))]


def text(config: Config) -> ArchSpec:
    offset, scale = (1.0 if config.flag("use_gemma_norm") else 0.0), config.number("routed_scaling_factor")
    head_dim, factor = config.positive("head_dim"), config.number("partial_rotary_factor")
    rotated = config.count("rotary_dim", 0) or int(head_dim * factor)
    qk = config.qk_heads(offset=offset) if config.flag("use_qk_norm") else None
    dense = config.attention(head_dim=head_dim, rope=config.rope(rotated), qk_norm=qk)
    attentions: list[Any] = [dense] * config.positive("num_hidden_layers")
    if config.get("index_block_size") is not None:
        heads, dim = config.positive("index_n_heads"), config.positive("index_head_dim")
        if dense.heads % heads:
            raise config.invalid("index_n_heads", heads, f"a divisor of the {dense.heads} attention heads")
        sparse = IndexedBlocksSpec(
            attention=dense,
            heads=heads,
            dim=dim,
            size=config.positive("index_block_size"),
            top=config.positive("index_topk_blocks"),
            local=config.count("index_local_blocks"),
            rope=config.rope(min(rotated, dim)),
            norms=(config.rms("index_q_norm", offset), config.rms("index_k_norm", offset)),
        )
        picks = _each(config, "layer_types", "full_attention", "sparse_attention_freq")
        attentions = [sparse if pick else dense for pick in picks]
    act = {"act": "swiglu_oai", "limit": (config.number("swiglu_alpha"), config.number("swiglu_limit"))}
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    router = RouterSpec(
        score="sigmoid_float32",
        correction="e_score_correction_bias",
        normalise="sum",
        eps=1e-20,
        scale=scale,
        cast="input",
    )
    moe = config.moe(
        router,
        experts="num_local_experts",
        expert=config.mlp(**act),
        hidden="intermediate_size",
        shared=config.mlp(hidden=config.positive("shared_intermediate_size"), **act),
    )
    feed = config.mlp(hidden=config.positive("dense_intermediate_size"), **act)
    routed = _each(config, "mlp_layer_types", "dense", "moe_layer_freq")
    norms = config.pre_norms(offset=offset)
    made = config.layers(attentions.__getitem__, lambda i: moe if routed[i] else feed, norms=norms)
    made = [
        replace(layer, mlp_key="block_sparse_moe") if pick else layer for layer, pick in zip(made, routed, strict=True)
    ]
    return config.arch(made, norm=config.rms("model.norm", offset), more_rules=_rules(moe.experts))


def spec(config: Config) -> ArchSpec:
    return text_tower(config, text(_read(config)))
