"""apertus: a norm on each query and key head, xIELU without a gate, norms named after the mixers they precede."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, pre_norms, qk_heads, rope
from engine.graph.renames import UNTIE, Change
from engine.graph.spec import ArchSpec, LayerSpec
from engine.graph.xielu import XieluMlpSpec

SCALARS = Change(r"\.alpha_[pn]$", lambda alpha: alpha.squeeze())  # of shape [1] on the hub


def spec(config: Config) -> ArchSpec:
    head_dim = even_head_dim(config)
    layer = LayerSpec(
        attention=attention(config, head_dim=head_dim, rope=rope(config, head_dim, None), qk_norm=qk_heads(config)),
        mlp=XieluMlpSpec(hidden=config.positive("intermediate_size"), bias=config.flag("mlp_bias")),
        norms=pre_norms(config, "attention_layernorm", "feedforward_layernorm"),
    )
    tied = config.flag("tie_word_embeddings")
    return arch(config, layer, tied=tied, rules=(SCALARS, UNTIE) if tied else (SCALARS,))
