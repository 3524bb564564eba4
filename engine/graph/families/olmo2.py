"""olmo2: norms after the mixers only, and a norm over all query (key) heads together."""

from engine.graph.families.common import ArchSpec, Config, Norms


def post_norms(config: Config) -> Norms:
    """Norms after both mixers."""
    return config.norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")


def spec(config: Config) -> ArchSpec:
    attn = config.attention(bias=config.flag("attention_bias", False), qk_norm=config.qk_heads("flat"))
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    return config.decoder(attn, feed, norms=post_norms(config), untie=False)
