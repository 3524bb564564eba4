"""gemma: norms that store w for 1 + w, exact GELU, scaled embedding, tied head."""

from engine.graph.families.common import ArchSpec, Config, StemSpec, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, traditional = config.positive("head_dim"), config.flag("rope_traditional", False)
    rope = plain_rope(head_dim, config.rope_base(10000.0), traditional)
    return config.decoder(
        config.attention(head_dim=head_dim, rope=rope),
        config.mlp(act="gelu"),
        norms=config.pre_norms(offset=1.0),
        tied=True,
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        rules=(),
    )
