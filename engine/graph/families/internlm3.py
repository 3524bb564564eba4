"""internlm3: llama with one switch for the biases of attention and one for the MLP's."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, rope
from engine.graph.families.internlm2 import TABLES
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = even_head_dim(config), config.flag("qkv_bias", False)
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim), qkv_bias=bias, out_bias=bias)
    layer = LayerSpec(attention=attn, mlp=mlp(config, bias=config.flag("bias", False)), norms=pre_norms(config))
    return arch(config, layer, tied=config.flag("tie_word_embeddings", False), rules=(TABLES,))
