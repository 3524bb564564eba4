"""gemma4_text: gemma's four norms, wider heads in global layers, per-layer inputs, last layers that attend the last
cache of their kind, a factor per layer; on switches keys as values, and experts beside the MLP."""

from dataclasses import replace
from typing import Any

from engine.graph.dual_mlp import DualMlpSpec
from engine.graph.families.common import DEFAULTS, Config, arch, attention, mlp, qk_heads, rms, sliding
from engine.graph.families.gemma3n import around, shared_caches, unread
from engine.graph.per_layer import PerLayerGateSpec, PerLayerStemSpec, TailedLayerSpec
from engine.graph.renames import Drop, Rename, Split, halves
from engine.graph.spec import ArchSpec, AttentionSpec, HeadSpec, LayerSpec, MlpSpec, RopeSpec, StemSpec

_ROPES = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["gemma4_text"])
    layers, shared = config.positive("num_hidden_layers"), config.count("num_kv_shared_layers")
    pattern = ["sliding_attention"] * (config.positive("sliding_window_pattern") - 1) + ["full_attention"]
    kinds = config.each("layer_types", (pattern * layers)[:layers])
    sources, eps = shared_caches(kinds, shared), config.number("rms_norm_eps")
    width = config.get("hidden_size_per_layer_input")
    hidden, ropes = config.positive("intermediate_size"), config.read("rope_parameters", _ROPES)

    def layer(i: int) -> TailedLayerSpec:
        gate = PerLayerGateSpec(index=i, dim=width, eps=eps) if width else None
        wide = sources[i] is not None and config.flag("use_double_wide_mlp", True)
        dense = mlp(config, hidden=hidden * 2 if wide else hidden, act="geglu_compiled")
        attn = _attention(config, kinds[i] == "sliding_attention", sources[i], ropes.get(kinds[i], {}))
        return TailedLayerSpec(layer=_layer(config, attn, dense), per_layer=gate, factor="layer_scalar")

    stem: Any = StemSpec(scale=config.positive("hidden_size") ** 0.5)
    if width:
        rows = config.positive("vocab_size_per_layer_input")
        stem = PerLayerStemSpec(stem=stem, at="model", vocab=rows, dim=width, eps=eps)
    return arch(
        config,
        [layer(i) for i in range(layers)],
        stem=stem,
        head=HeadSpec(
            tied=config.flag("tie_word_embeddings", True),
            softcap=config.get("final_logit_softcapping", 30.0),
            softcap_compiled=True,
        ),
        rules=(
            Drop((r"self_attn\.rotary_emb", r"(in|out)put_(min|max)")),
            unread(sources),
            Split(
                r"(.*\.experts)\.gate_up_proj",
                (r"\1.switch_glu.gate_proj.weight", r"\1.switch_glu.up_proj.weight"),
                halves(-2),
            ),
            Rename(r"\.experts\.down_proj$", ".experts.switch_glu.down_proj.weight"),
        ),
    )


def _attention(config: Config, local: bool, source: int | None, turning: Any) -> AttentionSpec:
    head_dim = config.positive("head_dim")
    if not local:
        head_dim = config.get("global_head_dim") or head_dim
    kv_heads, values = config.positive("num_key_value_heads"), "own"
    if not local and config.flag("attention_k_eq_v", False):
        kv_heads, values = config.positive("num_global_key_value_heads", kv_heads), "keys"
    return attention(
        config,
        head_dim=head_dim,
        kv_heads=kv_heads,
        values=values,
        scale=1.0,
        rope=RopeSpec(
            dims=head_dim,
            base=turning.get("rope_theta", 10000.0),
            traditional=config.flag("rope_traditional", False),
            scaling=turning,
            max_positions=config.positive("max_position_embeddings"),
        ),
        qk_norm=qk_heads(config),
        v_norm=rms(config, None),
        reads=source,
        **(sliding(config) if local else {}),
    )


def _layer(config: Config, attn: AttentionSpec, dense: MlpSpec) -> LayerSpec:
    if not config.flag("enable_moe_block", False):
        return LayerSpec(attention=attn, mlp=dense, norms=around(config))
    both = DualMlpSpec(
        dense=dense,
        expert=mlp(config, hidden=config.positive("moe_intermediate_size"), act="geglu_compiled"),
        experts=config.positive("num_experts"),
        top_k=config.positive("top_k_experts"),
        eps=config.number("rms_norm_eps"),
    )
    return LayerSpec(attention=attn, mlp=both, mlp_key="", norms=replace(around(config), pre_mlp=None))
