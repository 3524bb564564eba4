"""gemma4_text: gemma's four norms, wider heads in global layers, per-layer inputs, last layers that attend the last
cache of their kind, a factor per layer; on switches keys as values, and experts beside the MLP."""

from dataclasses import replace
from typing import Any

from engine.graph.families.common import DEFAULTS, ArchSpec, AttentionSpec, Config, HeadSpec, LayerSpec, StemSpec
from engine.graph.families.gemma2 import around
from engine.graph.families.gemma3n import shared_caches, unread
from engine.graph.mixtures import DualMlpSpec
from engine.graph.per_layer import PerLayerGateSpec, PerLayerStemSpec, TailedLayerSpec
from engine.graph.renames import Drop, Rename, Split, halves

_RULES = (
    Drop((r"self_attn\.rotary_emb", r"(in|out)put_(min|max)")),
    Split(r"(.*\.experts)\.gate_up_proj", tuple(rf"\1.switch_glu.{n}_proj.weight" for n in ("gate", "up")), halves(-2)),
    Rename(r"\.experts\.down_proj$", ".experts.switch_glu.down_proj.weight"),
)


def spec(config: Config) -> ArchSpec:
    layers = config.positive("num_hidden_layers")
    pattern = ["sliding_attention"] * (config.positive("sliding_window_pattern") - 1) + ["full_attention"]
    kinds = config.each("layer_types", (pattern * layers)[:layers])
    sources, width = shared_caches(config, kinds), config.get("hidden_size_per_layer_input")

    def layer(i: int) -> TailedLayerSpec:
        twice = sources[i] is not None and config.flag("use_double_wide_mlp")
        feed: Any = config.mlp(hidden=config.positive("intermediate_size") * (1 + twice), act="geglu_compiled")
        fields: dict[str, Any] = {"mlp": feed, "norms": around(config, 0.0)}
        if config.flag("enable_moe_block", False):
            expert = replace(feed, hidden=config.positive("moe_intermediate_size"))
            count, top_k = config.positive("num_experts"), config.positive("top_k_experts")
            fields["mlp"] = DualMlpSpec(dense=feed, expert=expert, experts=count, top_k=top_k)
            fields |= {"mlp_key": "", "norms": replace(fields["norms"], pre_mlp=None)}
        inner = LayerSpec(attention=_attention(config, kinds[i], sources[i]), **fields)
        gate = PerLayerGateSpec(index=i, dim=width) if width else None
        return TailedLayerSpec(layer=inner, per_layer=gate, factor="layer_scalar")

    stem: Any = StemSpec(scale=config.positive("hidden_size") ** 0.5)
    if width:
        rows = config.positive("vocab_size_per_layer_input")
        stem = PerLayerStemSpec(stem=stem, at="model", vocab=rows, dim=width)
    head = HeadSpec(tied=config.tied(), softcap=config.get("final_logit_softcapping"), softcap_compiled=True)
    return config.arch([layer(i) for i in range(layers)], stem=stem, head=head, rules=(*_RULES, unread(sources)))


def _attention(config: Config, kind: str, source: int | None) -> AttentionSpec:
    head_dim, kv_heads = config.positive("head_dim"), config.positive("num_key_value_heads")
    window, values = config.sliding(), "own"
    if kind == "full_attention":
        window, head_dim = {}, config.count("global_head_dim", 0) or head_dim
        if config.flag("attention_k_eq_v", False):
            values, kv_heads = "keys", config.positive("num_global_key_value_heads", kv_heads)
    ropes = config.holding("rope_parameters", dict, DEFAULTS["gemma4_text"]["rope_parameters"])
    rope = config.replaced(rope_theta=None, rope_scaling=None, rope_parameters=ropes.get(kind, {})).rope(head_dim)
    normed = {"qk_norm": config.qk_heads(), "v_norm": config.rms(None)}
    sizes = {"head_dim": head_dim, "kv_heads": kv_heads, "scale": 1.0, **window}
    return config.attention(values=values, rope=rope, reads=source, **normed, **sizes)
