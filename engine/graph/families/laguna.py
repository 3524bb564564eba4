"""laguna: a rope and a number of query heads per kind of layer, norms on query and key heads, a softplus gate per head,
float32 sigmoid routing with a correction bias, a shared expert beside the scaled mixture."""

from collections.abc import Mapping
from typing import Any

from engine.graph.families.common import DEFAULTS, Config, arch, attention, mlp, pre_norms, qk_heads, window_layers
from engine.graph.renames import ROTARY, UNTIE, Rename, stacked
from engine.graph.spec import ArchSpec, GateSpec, LayerSpec, MoeSpec, RopeSpec, RouterSpec

_SCORES: dict[str, Any] = {"sigmoid": "sigmoid_float32", "sqrtsoftplus": "sqrtsoftplus_float32"}


def kind_rope(config: Config, window: Mapping[str, object]) -> RopeSpec:
    """The rope under rope_parameters for sliding or for full layers; its part of a head may be its own."""
    kinds = config.inner("rope_parameters") if config.get("rope_parameters") else Config({})
    kind = "sliding_attention" if window else "full_attention"
    given = kinds.inner(kind) if kinds.get(kind) else Config({})
    part = given.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    return RopeSpec(
        dims=int(config.positive("head_dim") * part),
        base=given.number("rope_theta", 10000.0),
        scaling={key: value for key, value in given.items() if key not in ("rope_theta", "model_type")},
        max_positions=config.positive("max_position_embeddings"),
    )


def _moe(config: Config) -> MoeSpec:
    return MoeSpec(
        experts=config.positive("num_experts", 256),
        top_k=config.positive("num_experts_per_tok", 8),
        router=RouterSpec(
            key="gate.proj",
            score=_SCORES[config.choice("moe_router_score_func", _SCORES, "sigmoid")],
            softcap=config.number("moe_router_logit_softcapping", 0.0, zero=True) or None,
            correction="gate.e_score_correction_bias",
            normalise="sum",
        ),
        expert=mlp(config, hidden=config.positive("moe_intermediate_size", 512)),
        cast=True,
        scale=config.number("moe_routed_scaling_factor", 1.0),
        shared=mlp(config, hidden=config.positive("shared_expert_intermediate_size", 512)),
        shared_at="shared_expert",
    )


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["laguna"])
    heads = "num_attention_heads_per_layer"
    count, gated = config.positive("num_hidden_layers"), config.flag("gating", True)
    config.each(heads, [0] * count)
    sparse = config.each("mlp_layer_types", ["dense"] + ["sparse"] * (count - 1))
    layers = []
    for i, window in enumerate(window_layers(config, ["full_attention"] * count)):
        attn = attention(
            config,
            heads=config.of_layer(i, heads).positive(heads, config.positive("num_attention_heads")),
            rope=kind_rope(config, window),
            qkv_bias=config.flag("qkv_bias", False),
            out_bias=config.flag("attention_bias", False),
            qk_norm=qk_heads(config),
            gate=GateSpec(key="g_proj", per_head=True, fn="softplus", float32=True) if gated else None,
            **window,
        )
        feed = _moe(config) if sparse[i] == "sparse" else mlp(config)
        layers.append(LayerSpec(attention=attn, mlp=feed, norms=pre_norms(config)))
    tied = config.flag("tie_word_embeddings", False)
    rules = (
        Rename(r"^language_model\.", ""),
        ROTARY,
        *((UNTIE,) if tied else ()),
        Rename(r"\.mlp\.gate\.weight$", ".mlp.gate.proj.weight"),
        Rename(r"\.mlp\.experts\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"),
        *stacked("mlp", "switch_mlp"),
    )
    return arch(config, layers, tied=tied, rules=rules)
