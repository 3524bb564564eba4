"""bailing_moe: fused q, k and v under other names, group-limited routing from the back, and a head of unit columns."""

from typing import Any

import mlx.core as mx

from engine.graph.families.common import (
    ArchSpec,
    AttentionSpec,
    Change,
    Config,
    MoeSpec,
    Rename,
    RouterSpec,
    StemSpec,
    stacked,
)


def unit_columns(head: mx.array) -> mx.array:
    """A head [V, D] over the norm of its columns; packed words stay (they were divided before they were packed)."""
    if not mx.issubdtype(head.dtype, mx.floating):
        return head
    return (head / (mx.linalg.norm(head.astype(mx.float32), axis=0, keepdims=True) + 1e-7)).astype(head.dtype)


def projections(config: Config, qk_norm: bool = False, **changes: Any) -> AttentionSpec:
    """Attention of fused queries, keys and values; qk_norm: what silence on use_qk_norm means."""
    bias, out_bias = config.flag("use_qkv_bias", False), config.flag("use_bias", False)
    normed = config.qk_heads(q="query_layernorm", k="key_layernorm") if config.flag("use_qk_norm", qk_norm) else None
    fields = {"qkv": "query_key_value", "qkv_bias": bias, "o": "dense", "out_bias": out_bias, "qk_norm": normed}
    return config.attention(**fields, **changes)


def mixture(config: Config, compiled: bool = True, **changes: Any) -> MoeSpec:
    """The mixture, with `changes` to its router."""
    score: Any = config.choice("score_function", ("softmax", "sigmoid"), "softmax") + "_float32"
    correction = "gate.expert_bias" if config.flag("moe_router_enable_expert_bias", False) else None
    ranked: dict[str, Any] = {"score": score, "correction": correction, "pick": "back", **config.group_limits(4)}
    weighed: dict[str, Any] = {"normalise": "sum" if config.flag("norm_topk_prob") else None, "only_above_one": True}
    weighed |= {"eps": 1e-20, "scale": config.number("routed_scaling_factor", 1.0), "cast": "logits"}
    wide = config.count("moe_shared_expert_intermediate_size", 0) or config.positive("moe_intermediate_size")
    wide *= config.count("num_shared_experts") if config.flag("moe_router_enable_shared_expert", True) else 0
    bias = config.flag("use_bias", False)
    router = RouterSpec(**{"key": "gate.gate_proj", "compiled": compiled, **ranked, **weighed, **changes})
    return config.moe(router, shared=config.mlp(hidden=wide, bias=bias) if wide else None, bias=bias, compiled=compiled)


def arch(config: Config, attn: Any, sparse: MoeSpec | None, *rules: Any) -> ArchSpec:
    """The decoder around `attn`, with `sparse` after the first dense layers, where it is not None."""
    first, dense = config.count("first_k_dense_replace"), config.mlp(bias=config.flag("use_bias", False))
    tied, unit = config.tied(False), config.flag("norm_head", False)
    if tied and unit:
        raise config.invalid("norm_head", unit, "false with tie_word_embeddings, as there is no head")
    rules += (*stacked("mlp", "switch_mlp"), Rename(r"\.mlp\.gate\.(weight|bias)$", r".mlp.gate.gate_proj.\1"))
    rules += (Change(r"^lm_head\.weight$", unit_columns),) if unit else ()
    return config.decoder(
        attn,
        lambda i: sparse if sparse and i >= first else dense,
        attn_key="attention",
        tied=tied,
        stem=StemSpec(key="model.word_embeddings"),
        more_rules=rules,
    )


def spec(config: Config) -> ArchSpec:
    head_dim = config.even_head_dim()
    rotated = config.count("rotary_dim", 0) or int(head_dim * config.number("partial_rotary_factor", 1.0))
    return arch(config, projections(config, head_dim=head_dim, rope=config.rope(rotated)), mixture(config))
