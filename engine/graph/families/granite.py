"""granite: llama with factors on the embedding, the attention scores, both residual branches and the logits."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    flat, bias = config.replaced(rope_traditional=False), config.flag("attention_bias")
    scale, head_dim = config.number("attention_multiplier"), config.even_head_dim()
    return config.decoder(
        flat.attention(head_dim=head_dim, theta=None, scale=scale, bias=bias),
        config.mlp(bias=config.flag("mlp_bias")),
        residual_scale=config.number("residual_multiplier"),
        head=HeadSpec(tied=config.tied(True), divide=config.number("logits_scaling")),
        stem=StemSpec(scale=config.number("embedding_multiplier")),
        rotary=False,
    )
