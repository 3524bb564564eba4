"""apertus: a norm on each query and key head, xIELU without a gate, norms named after the mixers they precede."""

from engine.graph.families.common import ArchSpec, Change, Config
from engine.graph.xielu import XieluMlpSpec

SCALARS = Change(r"\.alpha_[pn]$", lambda alpha: alpha.squeeze())  # of shape [1] on the hub


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.even_head_dim(), theta=None, qk_norm=config.qk_heads())
    feed = XieluMlpSpec(hidden=config.positive("intermediate_size"), bias=config.flag("mlp_bias"))
    norms = config.pre_norms("attention_layernorm", "feedforward_layernorm")
    return config.decoder(attn, feed, norms=norms, tied=config.tied(), rotary=False, more_rules=(SCALARS,))
