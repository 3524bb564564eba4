"""ernie4_5: llama with the traditional rope, and one switch for the biases of both mixers."""

from engine.graph.families.common import ArchSpec, Config, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", config.even_head_dim()), config.flag("use_bias")
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    attn, feed = config.attention(head_dim=head_dim, rope=rope, bias=bias), config.mlp(bias=bias)
    return config.decoder(attn, feed, tied=config.tied(), rules=())
