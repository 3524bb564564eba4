"""glm: llama with the traditional rope, gate and up in one matrix, biases on q, k and v only."""

from engine.graph.families.common import ArchSpec, Config, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim", config.even_head_dim())
    rope = plain_rope(head_dim, config.rope_base(10000.0), traditional=True)
    attn = config.attention(head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias", False))
    return config.decoder(attn, config.mlp(up="gate_up_proj", fused=True))
