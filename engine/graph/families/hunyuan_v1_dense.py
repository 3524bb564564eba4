"""hunyuan_v1_dense: norms on query and key heads after the rope, whose base is enlarged once by alpha."""

from engine.graph.families.common import ArchSpec, Config, RopeSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", config.even_head_dim()), config.flag("attention_bias", False)
    alpha = config.inner("rope_scaling").number("alpha") if config.get("rope_scaling") else 1.0
    rope = RopeSpec(dims=head_dim, base=config.rope_base(10000.0), scaling={"type": "ntk-alpha", "alpha": alpha})
    normed = (
        config.qk_heads("rotated", "query_layernorm", "key_layernorm") if config.flag("use_qk_norm", True) else None
    )
    attn = config.attention(head_dim=head_dim, rope=rope, bias=bias, qk_norm=normed)
    return config.decoder(attn, config.mlp(), tied=config.tied(False), rotary=False)
