"""bailing_moe: fused q, k and v under other names, group-limited routing from the back, and a head of unit columns."""

from typing import Any

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Change, Config, MoeSpec, Rename, RouterSpec, StemSpec, stacked


def unit_columns(head: mx.array) -> mx.array:
    """A head [V, D] over the norm of its columns; packed words stay (they were divided before they were packed)."""
    if not mx.issubdtype(head.dtype, mx.floating):
        return head
    return (head / (mx.linalg.norm(head.astype(mx.float32), axis=0, keepdims=True) + 1e-7)).astype(head.dtype)


def mixture(config: Config, bias: bool) -> MoeSpec:
    score: Any = config.choice("score_function", ("softmax", "sigmoid"), "softmax") + "_float32"
    correction = "gate.expert_bias" if config.flag("moe_router_enable_expert_bias", False) else None
    ranked: dict[str, Any] = {"score": score, "correction": correction, "pick": "back", **config.group_limits(4)}
    weighed: dict[str, Any] = {"normalise": "sum" if config.flag("norm_topk_prob") else None, "only_above_one": True}
    weighed |= {"eps": 1e-20, "scale": config.number("routed_scaling_factor", 1.0), "cast": "logits"}
    wide = config.count("moe_shared_expert_intermediate_size", 0) or config.positive("moe_intermediate_size")
    wide *= config.count("num_shared_experts") if config.flag("moe_router_enable_shared_expert", True) else 0
    shared = config.mlp(hidden=wide, bias=bias) if wide else None
    router = RouterSpec(key="gate.gate_proj", compiled=True, **ranked, **weighed)
    return config.moe(router, shared=shared, bias=bias, compiled=True)


def spec(config: Config) -> ArchSpec:
    bias, head_dim = config.flag("use_bias", False), config.even_head_dim()
    rotated = config.count("rotary_dim", 0) or int(head_dim * config.number("partial_rotary_factor", 1.0))
    normed = config.qk_heads(q="query_layernorm", k="key_layernorm") if config.flag("use_qk_norm", False) else None
    fields = {"qkv": "query_key_value", "qkv_bias": config.flag("use_qkv_bias", False), "o": "dense", "out_bias": bias}
    attn = config.attention(head_dim=head_dim, rope=config.rope(rotated), qk_norm=normed, **fields)
    sparse, first = mixture(config, bias), config.count("first_k_dense_replace")
    made = config.layers(attn, lambda i: sparse if i >= first else config.mlp(bias=bias), attn_key="attention")
    tied, unit = config.tied(False), config.flag("norm_head", False)
    if tied and unit:
        raise config.invalid("norm_head", unit, "false with tie_word_embeddings, as there is no head")
    rules = (*stacked("mlp", "switch_mlp"), Rename(r"\.mlp\.gate\.(weight|bias)$", r".mlp.gate.gate_proj.\1"))
    rules += (Change(r"^lm_head\.weight$", unit_columns),) if unit else ()
    return config.arch(made, tied=tied, stem=StemSpec(key="model.word_embeddings"), more_rules=rules)
