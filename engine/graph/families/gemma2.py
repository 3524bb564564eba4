"""gemma2: norms around both mixers with weights stored as w for 1 + w, scaled embedding, two soft-caps, tied head."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, Norms, StemSpec, plain_rope


def around(config: Config, offset: float = 1.0) -> Norms:
    """Gemma's four norms."""
    of_mlp = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    return config.norms("input_layernorm", "post_attention_layernorm", *of_mlp, offset=offset)


def cap(config: Config, key: str, default: float) -> float | None:
    """A soft-cap; null switches it off (mlx-lm dies there)."""
    return None if config.get(key, default) is None else config.number(key, default)


def spec(config: Config) -> ArchSpec:
    head_dim, traditional = config.positive("head_dim"), config.flag("rope_traditional", False)
    scale = 1.0 / (config.number("query_pre_attn_scalar", 144.0) ** 0.5)
    rope, softcap = (
        plain_rope(head_dim, config.rope_base(10000.0), traditional),
        cap(config, "attn_logit_softcapping", 50.0),
    )
    return config.decoder(
        config.attention(head_dim=head_dim, rope=rope, scale=scale, softcap=softcap),
        config.mlp(act="gelu_approx"),
        norms=around(config),
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        head=HeadSpec(tied=True, softcap=cap(config, "final_logit_softcapping", 30.0)),
        rules=(),
    )
