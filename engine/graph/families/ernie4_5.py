"""ernie4_5: llama with the traditional rope, and one switch for the biases of both mixers."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", config.even_head_dim()), config.flag("use_bias")
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    attn = config.attention(head_dim=head_dim, rope=rope, qkv_bias=bias, out_bias=bias)
    layer = LayerSpec(attention=attn, mlp=config.mlp(bias=bias), norms=config.pre_norms())
    return config.arch(layer, tied=config.flag("tie_word_embeddings"), rules=())
