"""laguna: a rope and a number of query heads per kind of layer, norms on query and key heads, a softplus gate per head,
float32 sigmoid routing with a correction bias, a shared expert beside the scaled mixture."""

from collections.abc import Mapping
from typing import Any

from engine.graph.families.common import ArchSpec, Config, GateSpec, MoeSpec, Rename, RopeSpec, RouterSpec, stacked

_RULES = (
    Rename(r"^language_model\.", ""),
    Rename(r"\.mlp\.gate\.weight$", ".mlp.gate.proj.weight"),
    Rename(r"\.mlp\.experts\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"),
    *stacked("mlp", "switch_mlp"),
)


def kind_rope(config: Config, window: Mapping[str, object]) -> RopeSpec:
    """The rope under rope_parameters for sliding or for full layers; its part of a head may be its own."""
    kinds = config.inner("rope_parameters") if config.get("rope_parameters") else Config({})
    kind = "sliding_attention" if window else "full_attention"
    given = kinds.inner(kind) if kinds.get(kind) else Config({})
    part = given.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    dims, base = int(config.positive("head_dim") * part), given.number("rope_theta", 10000.0)
    scaling = {key: value for key, value in given.items() if key not in ("rope_theta", "model_type")}
    return RopeSpec(dims=dims, base=base, scaling=scaling, max_positions=config.positive("max_position_embeddings"))


def _sparse(config: Config) -> MoeSpec:
    score: Any = config.choice("moe_router_score_func", ("sigmoid", "sqrtsoftplus"), "sigmoid") + "_float32"
    softcap = config.number("moe_router_logit_softcapping", 0.0, zero=True) or None
    ranked: dict[str, Any] = {"softcap": softcap, "correction": "gate.e_score_correction_bias"}
    router = RouterSpec(key="gate.proj", score=score, normalise="sum", **ranked)
    beside = config.mlp(hidden=config.positive("shared_expert_intermediate_size"))
    scale = config.number("moe_routed_scaling_factor")
    return config.moe(router, cast=True, scale=scale, shared=beside, shared_at="shared_expert")


def spec(config: Config) -> ArchSpec:
    count, heads = config.positive("num_hidden_layers"), "num_attention_heads_per_layer"
    config.each(heads, [0] * count)
    sparse = config.each("mlp_layer_types", ["dense"] + ["sparse"] * (count - 1))
    gate = GateSpec(key="g_proj", per_head=True, fn="softplus", float32=True) if config.flag("gating", True) else None
    biases = {"qkv_bias": config.flag("qkv_bias", False), "out_bias": config.flag("attention_bias", False)}
    attn = [
        config.attention(
            heads=config.of_layer(i, heads).positive(heads, config.positive("num_attention_heads")),
            rope=kind_rope(config, window),
            qk_norm=config.qk_heads(),
            gate=gate,
            **biases,
            **window,
        )
        for i, window in enumerate(config.window_layers(["full_attention"] * count))
    ]
    feed = [_sparse(config) if kind == "sparse" else config.mlp() for kind in sparse]
    return config.decoder(attn, feed, tied=config.tied(False), more_rules=_RULES)
