"""helium: llama with the traditional rope, biases on q, k and v only; a head is stored even where it is tied."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, plain_rope, pre_norms, rope_base
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, tied = even_head_dim(config), config.flag("tie_word_embeddings")
    rope = plain_rope(head_dim, rope_base(config), traditional=True)
    attn = attention(config, head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias"))
    layer = LayerSpec(attention=attn, mlp=mlp(config, bias=config.flag("mlp_bias")), norms=pre_norms(config))
    return arch(config, layer, tied=tied, rules=(Drop((r"^lm_head\.",)),) if tied else ())
