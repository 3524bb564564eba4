"""olmo2: norms after the mixers only, and a norm over all query (key) heads together."""

from engine.graph.families.common import Config
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def post_norms(config: Config) -> Norms:
    """Norms after both mixers."""
    after_mlp = config.rms("post_feedforward_layernorm")
    return Norms(post_attn=config.rms("post_attention_layernorm"), post_mlp=after_mlp)


def spec(config: Config) -> ArchSpec:
    attn = config.attention(bias=config.flag("attention_bias", False), qk_norm=config.qk_heads("flat"))
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    return config.arch(LayerSpec(attention=attn, mlp=feed, norms=post_norms(config)), rules=(ROTARY,))
