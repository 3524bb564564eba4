"""internlm3: llama with one switch for the biases of attention and one for the MLP's."""

from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.internlm2 import TABLES


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.even_head_dim(), bias=config.flag("qkv_bias", False))
    feed = config.mlp(bias=config.flag("bias", False))
    return config.decoder(attn, feed, tied=config.tied(False), rules=(TABLES,))
