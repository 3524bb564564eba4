"""glm4: norms around both mixers, gate and up in one matrix, rope on part of a head in the traditional order."""

from engine.graph.families.common import ArchSpec, Config, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    rotated, traditional = int(head_dim * config.number("partial_rotary_factor")), config.flag("rope_traditional", True)
    rope = plain_rope(rotated, config.rope_base(), traditional)
    attn = config.attention(head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias"))
    after = ("post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    norms = config.norms("input_layernorm", *after)
    return config.decoder(attn, config.mlp(up="gate_up_proj", fused=True), norms=norms, tied=False, rules=())
