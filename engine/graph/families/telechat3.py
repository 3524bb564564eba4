"""telechat3: llama with an untied head by default, and its own name for yarn."""

from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    flat = config.replaced(rope_traditional=False, num_key_value_heads=config.positive("num_key_value_heads"))
    attn = flat.attention(bias=config.flag("attention_bias", False))
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    layer = LayerSpec(attention=attn, mlp=feed, norms=config.pre_norms())
    return config.arch(layer, tied=config.flag("tie_word_embeddings", False), rules=())
