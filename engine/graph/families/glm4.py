"""glm4: norms around both mixers, gate and up in one matrix, rope on part of a head in the traditional order."""

from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, rms, rope_base
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    rotated = int(head_dim * config.number("partial_rotary_factor"))
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            rope=plain_rope(rotated, rope_base(config), config.flag("rope_traditional", True)),
            qkv_bias=config.flag("attention_bias"),
        ),
        mlp=mlp(config, up="gate_up_proj", fused=True),
        norms=Norms(
            pre_attn=rms(config, "input_layernorm"),
            post_attn=rms(config, "post_self_attn_layernorm"),
            pre_mlp=rms(config, "post_attention_layernorm"),
            post_mlp=rms(config, "post_mlp_layernorm"),
        ),
    )
    return arch(config, layer, tied=False, rules=())
