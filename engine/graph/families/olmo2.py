"""olmo2: norms after the mixers only, and a norm over all query (key) heads together."""

from engine.graph.families.common import Config, arch, attention, mlp, qk_heads, rms
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    bias = config.flag("attention_bias", False)
    layer = LayerSpec(
        attention=attention(config, qkv_bias=bias, out_bias=bias, qk_norm=qk_heads(config, "flat")),
        mlp=mlp(config, bias=config.flag("mlp_bias", False)),
        norms=Norms(
            post_attn=rms(config, "post_attention_layernorm"), post_mlp=rms(config, "post_feedforward_layernorm")
        ),
    )
    return arch(config, layer, rules=(ROTARY,))
