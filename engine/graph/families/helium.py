"""helium: llama with the traditional rope, biases on q, k and v only; a head is stored even where it is tied."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, tied = config.even_head_dim(), config.flag("tie_word_embeddings")
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    attn = config.attention(head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias"))
    layer = LayerSpec(attention=attn, mlp=config.mlp(bias=config.flag("mlp_bias")), norms=config.pre_norms())
    return config.arch(layer, tied=tied, rules=(Drop((r"^lm_head\.",)),) if tied else ())
