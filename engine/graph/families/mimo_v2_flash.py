"""mimo_v2_flash: sliding layers with heads, rope base and sinks of their own, values narrower than keys and scaled,
grouped sigmoid routing; the original is in blocks of 8-bit floats."""

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, Drop, Float8Blocks, plain_rope, stacked
from engine.graph.families.glm4_moe import grouped_router


def _attention(config: Config, local: bool) -> AttentionSpec:
    at, kind = ("swa_", "swa") if local else ("", "full")
    head_dim, scale = config.positive(f"{at}head_dim"), config.get("attention_value_scale")
    dims = int(config.number("partial_rotary_factor") * head_dim)
    names = {"heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "v_dim": "v_head_dim"}
    return config.attention(
        head_dim=head_dim,
        rope=plain_rope(dims, config.number(f"{at}rope_theta")),
        value_scale=None if scale is None else config.number("attention_value_scale"),
        sinks="attention_sink_bias" if config.flag(f"add_{kind}_attention_sink_bias") else None,
        **{field: config.positive(f"{at}{key}") for field, key in names.items()},
        **(config.sliding(config.positive("sliding_window_size")) if local else {}),
    )


def spec(config: Config) -> ArchSpec:
    eps, scale = config.number("layernorm_epsilon"), config.number("routed_scaling_factor", 1.0)
    config = config.replaced(rms_norm_eps=eps, routed_scaling_factor=scale)
    config.choice("topk_method", ("noaux_tc",))
    router = grouped_router(config, eps=1e-20)
    sparse = config.moe(router, experts="n_routed_experts", shared="n_shared_experts", cast=True)
    kinds = {local: _attention(config, local) for local in (True, False)}
    attn = [kinds[local == 1] for local in config.each("hybrid_layer_pattern")]
    feed = [sparse if routed == 1 else config.mlp() for routed in config.each("moe_layer_freq")]
    # What is under mtp predicts more tokens than the next one.
    rules = (Drop((r"^model\.mtp",)), Float8Blocks(), *stacked("mlp", "switch_mlp"))
    return config.decoder(attn, feed, tied=False, more_rules=rules)
