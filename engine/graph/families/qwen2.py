"""qwen2: llama with biases on q, k and v; the head dimension is always hidden_size / heads."""

from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    attn = config.attention(head_dim=head_dim, rope=config.rope(head_dim, 1000000.0), qkv_bias=True)
    return config.arch(LayerSpec(attention=attn, mlp=config.mlp(), norms=config.pre_norms()))
