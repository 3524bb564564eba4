"""mimo_v2_flash: sliding layers with heads, rope base and sinks of their own, values narrower than keys and scaled,
grouped sigmoid routing; the original is in blocks of 8-bit floats."""

from dataclasses import replace

from engine.graph.families.common import Config, plain_rope
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.renames import Drop, Float8Blocks, stacked
from engine.graph.spec import ArchSpec, AttentionSpec


def _attention(config: Config, local: bool) -> AttentionSpec:
    at = "swa_" if local else ""
    head_dim = config.positive(f"{at}head_dim")
    sinks = config.flag("add_swa_attention_sink_bias" if local else "add_full_attention_sink_bias")
    return config.attention(
        heads=config.positive(f"{at}num_attention_heads"),
        kv_heads=config.positive(f"{at}num_key_value_heads"),
        head_dim=head_dim,
        v_dim=config.positive(f"{at}v_head_dim"),
        rope=plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number(f"{at}rope_theta")),
        value_scale=config.number("attention_value_scale") if config.get("attention_value_scale") is not None else None,
        sinks="attention_sink_bias" if sinks else None,
        **(config.sliding(config.positive("sliding_window_size")) if local else {}),
    )


def spec(config: Config) -> ArchSpec:
    config = config.replaced(rms_norm_eps=config.number("layernorm_epsilon"))
    config.choice("topk_method", ("noaux_tc",))
    scaled = config.replaced(routed_scaling_factor=config.number("routed_scaling_factor", 1.0))
    router = replace(grouped_router(scaled), eps=1e-20)
    sparse = config.moe(router, experts="n_routed_experts", shared="n_shared_experts", cast=True)
    kinds = {local: _attention(config, local) for local in (True, False)}
    local, routed = config.each("hybrid_layer_pattern"), config.each("moe_layer_freq")
    return config.arch(
        config.layers(lambda i: kinds[local[i] == 1], lambda i: sparse if routed[i] == 1 else config.mlp()),
        tied=False,
        # What is under mtp predicts more tokens than the next one.
        more_rules=(Drop((r"^model\.mtp",)), Float8Blocks(), *stacked("mlp", "switch_mlp")),
    )
