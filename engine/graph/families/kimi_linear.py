"""kimi_linear: Kimi delta attention, and latent attention without positions in the layers not in kda_layers."""

import math
from typing import Any

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Change, Config, Drop, LayerSpec, Rename, RouterSpec, stacked
from engine.graph.kda import KdaSpec
from engine.graph.latent import LatentSpec, SplitHeads
from engine.graph.renames import FILTERS
from engine.graph.spec import Rule


def decay_bound(config: Config, key: str, default: object) -> float:
    """The negative number whose exponential no decay is below."""
    value = config.read(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value < 0:
        raise config.invalid(key, value, "a finite number < 0")
    return value


def delta(config: Config, **changes: Any) -> KdaSpec:
    """The delta layers of linear_attn_config."""
    inner = config.inner("linear_attn_config")
    heads, dim = inner.positive("num_heads"), inner.positive("head_dim")
    width = inner.positive("short_conv_kernel_size", 4)
    return KdaSpec(heads=heads, dim=dim, width=width, eps=config.number("rms_norm_eps"), **changes)


def unturned(config: Config, **fields: Any) -> LatentSpec:
    """Latent attention without positions."""
    if not config.flag("mla_use_nope", True):
        raise config.invalid("mla_use_nope", False, "true: these queries have no positions")
    nope, turned = config.positive("qk_nope_head_dim"), config.count("qk_rope_head_dim", 0)
    heads, rank, v_dim = (config.positive(key) for key in ("num_attention_heads", "kv_lora_rank", "v_head_dim"))
    sizes: dict[str, Any] = {"heads": heads, "rank": rank, "nope": nope, "turned": turned, "v_dim": v_dim}
    return LatentSpec(**sizes, scale=(nope + turned) ** -0.5, rope=None, **fields)


def router(config: Config, **changes: Any) -> RouterSpec:
    """Group-limited routing with a bias in the ranking."""
    groups = config.positive("num_expert_group", 1)
    if groups > 1 and not config.flag("use_grouped_topk", True):
        raise config.invalid("use_grouped_topk", False, f"true with num_expert_group={groups}")
    return RouterSpec(
        **changes,
        correction="e_score_correction_bias",
        groups=groups,
        kept_groups=config.positive("topk_group", 1),
        normalise="sum" if config.flag("moe_renormalize", True) else None,
        only_above_one=True,
        eps=1e-20,
        scale=config.number("routed_scaling_factor", 1.0),
        compiled=True,
    )


def kimi_layers(config: Config, kda: KdaSpec, attn: LatentSpec, sparse: Any, **act: Any) -> list[LayerSpec]:
    """Layers by kda_layers, which counts from 1, with mixtures by first_k_dense_replace and moe_layer_freq; act: of the
    dense ones."""
    linear = config.inner("linear_attn_config").holding("kda_layers", list)
    first, every = config.count("first_k_dense_replace", 0), config.positive("moe_layer_freq", 1)
    return config.layers(
        lambda i: kda if i + 1 in linear else attn,
        lambda i: sparse if sparse and i >= first and i % every == 0 else config.mlp(**act),
    )


def kimi_rules(attn: LatentSpec) -> tuple[Rule, ...]:
    """Mixtures outside of mlp with experts w1, w2, w3, filters of other names and shapes, heads in one matrix."""
    return (
        Drop((r"^(model\.)?mtp",)),
        Rename(r"\.block_sparse_moe\.", ".mlp."),
        Rename(r"\.mlp\.gate\.e_score", ".mlp.e_score"),
        *stacked("mlp", "switch_mlp", {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}),
        FILTERS,
        Rename(r"\.([qkv])_conv1d\.", r".\1_conv.conv."),
        Change(r"\.(A_log|dt_bias)$", mx.flatten),
        SplitHeads(attn),
    )


def spec(config: Config) -> ArchSpec:
    dims = {key: config.read(key, config.get("head_dim")) for key in ("qk_nope_head_dim", "v_head_dim")}
    attn = unturned(config.replaced(**dims), eps=config.number("rms_norm_eps"))
    sparse = None
    if config.count("num_experts"):
        score: Any = config.choice("moe_router_activation_func", ("sigmoid", "softmax"), "sigmoid")
        picked = router(config, score=score, correction_cast=True)
        sparse = config.moe(picked, top_k="num_experts_per_token", shared="num_shared_experts")
    made = kimi_layers(config, delta(config), attn, sparse)
    return config.arch(made, tied=config.tied(False), more_rules=kimi_rules(attn))
