"""olmo2: norms after the mixers only, and a norm over all query (key) heads together."""

from engine.graph.families.common import Config, arch, attention, mlp, qk_heads, rms
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def post_norms(config: Config) -> Norms:
    """Norms after both mixers."""
    after_mlp = rms(config, "post_feedforward_layernorm")
    return Norms(post_attn=rms(config, "post_attention_layernorm"), post_mlp=after_mlp)


def spec(config: Config) -> ArchSpec:
    attn = attention(config, bias=config.flag("attention_bias", False), qk_norm=qk_heads(config, "flat"))
    feed = mlp(config, bias=config.flag("mlp_bias", False))
    return arch(config, LayerSpec(attention=attn, mlp=feed, norms=post_norms(config)), rules=(ROTARY,))
