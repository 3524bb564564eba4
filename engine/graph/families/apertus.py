"""apertus: a norm on each query and key head, xIELU without a gate, norms named after the mixers they precede."""

from engine.graph.families.common import Config
from engine.graph.renames import UNTIE, Change
from engine.graph.spec import ArchSpec, LayerSpec
from engine.graph.xielu import XieluMlpSpec

SCALARS = Change(r"\.alpha_[pn]$", lambda alpha: alpha.squeeze())  # of shape [1] on the hub


def spec(config: Config) -> ArchSpec:
    head_dim = config.even_head_dim()
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, rope=config.rope(head_dim, None), qk_norm=config.qk_heads()),
        mlp=XieluMlpSpec(hidden=config.positive("intermediate_size"), bias=config.flag("mlp_bias")),
        norms=config.pre_norms("attention_layernorm", "feedforward_layernorm"),
    )
    tied = config.flag("tie_word_embeddings")
    return config.arch(layer, tied=tied, rules=(SCALARS, UNTIE) if tied else (SCALARS,))
