"""mimo_v2_flash: sliding layers with heads, rope base and sinks of their own, values narrower than keys and scaled,
grouped sigmoid routing; the original is in blocks of 8-bit floats."""

from dataclasses import replace

from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, pre_norms, sliding
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.renames import ROTARY, Drop, Float8Blocks, stacked
from engine.graph.spec import ArchSpec, AttentionSpec, LayerSpec, MoeSpec


def _attention(config: Config, local: bool) -> AttentionSpec:
    at = "swa_" if local else ""
    head_dim = config.positive(f"{at}head_dim")
    sinks = config.flag("add_swa_attention_sink_bias" if local else "add_full_attention_sink_bias")
    return attention(
        config,
        heads=config.positive(f"{at}num_attention_heads"),
        kv_heads=config.positive(f"{at}num_key_value_heads"),
        head_dim=head_dim,
        v_dim=config.positive(f"{at}v_head_dim"),
        rope=plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number(f"{at}rope_theta")),
        value_scale=config.number("attention_value_scale") if config.get("attention_value_scale") is not None else None,
        sinks="attention_sink_bias" if sinks else None,
        **(sliding(config, config.positive("sliding_window_size")) if local else {}),
    )


def spec(config: Config) -> ArchSpec:
    config = config.replaced(rms_norm_eps=config.number("layernorm_epsilon"))
    config.choice("topk_method", ("noaux_tc",))
    hidden, shared = config.positive("moe_intermediate_size"), config.read("n_shared_experts", None)
    scaled = config.replaced(routed_scaling_factor=config.number("routed_scaling_factor", 1.0))
    moe = MoeSpec(
        experts=config.positive("n_routed_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=replace(grouped_router(scaled), eps=1e-20),
        expert=mlp(config, hidden=hidden),
        cast=True,
        shared=mlp(config, hidden=hidden * config.positive("n_shared_experts")) if shared is not None else None,
    )
    kinds = {local: _attention(config, local) for local in (True, False)}
    layers = [
        LayerSpec(attention=kinds[local == 1], mlp=moe if sparse == 1 else mlp(config), norms=pre_norms(config))
        for local, sparse in zip(config.each("hybrid_layer_pattern"), config.each("moe_layer_freq"), strict=True)
    ]
    further = Drop((r"^model\.mtp",))  # predicts more tokens than the next one
    return arch(config, layers, tied=False, rules=(ROTARY, further, Float8Blocks(), *stacked("mlp", "switch_mlp")))
