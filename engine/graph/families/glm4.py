"""glm4: norms around both mixers, gate and up in one matrix, rope on part of a head in the traditional order."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    rotated = int(head_dim * config.number("partial_rotary_factor"))
    layer = LayerSpec(
        attention=config.attention(
            head_dim=head_dim,
            rope=plain_rope(rotated, config.rope_base(), config.flag("rope_traditional", True)),
            qkv_bias=config.flag("attention_bias"),
        ),
        mlp=config.mlp(up="gate_up_proj", fused=True),
        norms=Norms(
            pre_attn=config.rms("input_layernorm"),
            post_attn=config.rms("post_self_attn_layernorm"),
            pre_mlp=config.rms("post_attention_layernorm"),
            post_mlp=config.rms("post_mlp_layernorm"),
        ),
    )
    return config.arch(layer, tied=False, rules=())
