"""qwen2: llama with biases on q, k and v; the head dimension is always hidden_size / heads."""

from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.even_head_dim(), theta=1000000.0, qkv_bias=True)
    return config.decoder(attn, config.mlp())
