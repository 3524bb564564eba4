"""qwen3: llama with a norm on each query and key head."""

from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = config.attention(head_dim=head_dim, rope=config.rope(head_dim, None), qk_norm=config.qk_heads())
    layer = LayerSpec(attention=attn, mlp=config.mlp(), norms=config.pre_norms())
    return config.arch(layer, tied=config.flag("tie_word_embeddings"))
