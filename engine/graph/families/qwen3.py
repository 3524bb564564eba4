"""qwen3: llama with a norm on each query and key head."""

from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.positive("head_dim"), theta=None, qk_norm=config.qk_heads())
    return config.decoder(attn, config.mlp(), tied=config.tied())
