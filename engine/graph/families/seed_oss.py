"""seed_oss: llama with separate switches for the biases of q, k, v and of the output, and a head_dim of its own."""

from engine.graph.families.common import Config
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    attn = config.attention(
        head_dim=config.positive("head_dim"),
        kv_heads=config.positive("num_key_value_heads"),
        qkv_bias=config.flag("attention_bias", False),
        out_bias=config.flag("attention_out_bias", False),
    )
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    tied = config.flag("tie_word_embeddings", True)
    layer = LayerSpec(attention=attn, mlp=feed, norms=config.pre_norms())
    return config.arch(layer, tied=tied, rules=(UNTIE,) if tied else ())
