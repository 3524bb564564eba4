"""gemma2: norms around both mixers with weights stored as w for 1 + w, scaled embedding, two soft-caps, tied head."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, StemSpec


def around(config: Config, offset: float = 1.0) -> Norms:
    """Gemma's four norms."""
    mlp = [config.rms(f"{side}_feedforward_layernorm", offset) for side in ("pre", "post")]
    attn = [config.rms(key, offset) for key in ("input_layernorm", "post_attention_layernorm")]
    return Norms(pre_attn=attn[0], post_attn=attn[1], pre_mlp=mlp[0], post_mlp=mlp[1])


def cap(config: Config, key: str, default: float) -> float | None:
    """A soft-cap; null switches it off (mlx-lm dies there)."""
    return None if config.get(key, default) is None else config.number(key, default)


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    traditional = config.flag("rope_traditional", False)
    attn = config.attention(
        head_dim=head_dim,
        rope=plain_rope(head_dim, config.rope_base(10000.0), traditional),
        scale=1.0 / (config.number("query_pre_attn_scalar", 144.0) ** 0.5),
        softcap=cap(config, "attn_logit_softcapping", 50.0),
    )
    return config.arch(
        LayerSpec(attention=attn, mlp=config.mlp(act="gelu_approx"), norms=around(config)),
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        head=HeadSpec(tied=True, softcap=cap(config, "final_logit_softcapping", 30.0)),
        rules=(),
    )
