"""internlm3: llama with one switch for the biases of attention and one for the MLP's."""

from engine.graph.families.common import Config
from engine.graph.families.internlm2 import TABLES
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.even_head_dim(), config.flag("qkv_bias", False)
    attn = config.attention(head_dim=head_dim, rope=config.rope(head_dim), qkv_bias=bias, out_bias=bias)
    layer = LayerSpec(attention=attn, mlp=config.mlp(bias=config.flag("bias", False)), norms=config.pre_norms())
    return config.arch(layer, tied=config.flag("tie_word_embeddings", False), rules=(TABLES,))
