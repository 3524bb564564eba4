"""qwen2: llama with biases on q, k and v; the head dimension is always hidden_size / heads."""

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, rope
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim, 1000000.0), qkv_bias=True)
    return arch(config, LayerSpec(attention=attn, mlp=mlp(config), norms=pre_norms(config)))
