"""mimo: llama with biases on q, k and v; layers that predict further tokens are left out."""

from engine.graph.families.common import ArchSpec, Config, Drop

FURTHER = Drop((r"^model\.mtp_layers\.",))


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.even_head_dim(), qkv_bias=True)
    return config.decoder(attn, config.mlp(), tied=config.tied(False), more_rules=(FURTHER,))
