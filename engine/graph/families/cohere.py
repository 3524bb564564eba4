"""cohere: both mixers read one layer norm and are added to its input; a scaled, tied head."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, HeadSpec, Norms, NormSpec, QkNorm, layer_norm, plain_rope


def parallel(config: Config, attn: Any, **changes: Any) -> ArchSpec:
    """The decoder around cohere's attention."""
    eps, bias = config.number("layer_norm_eps"), config.flag("layer_norm_bias", False)
    norms, norm = Norms(pre_attn=layer_norm("input_layernorm", eps, bias)), layer_norm("model.norm", eps, bias)
    head = HeadSpec(tied=True, multiply=config.number("logit_scale"))
    return config.decoder(attn, config.mlp(), norms=norms, flow="parallel", norm=norm, head=head, **changes)


def spec(config: Config) -> ArchSpec:
    head_dim, eps = config.even_head_dim(), config.number("layer_norm_eps", 1e-5)
    config = config.replaced(layer_norm_eps=eps, logit_scale=config.number("logit_scale", 0.0625))
    q, k = (NormSpec(key=key, eps=eps, kind="layer_heads") for key in ("q_norm", "k_norm"))
    normed = QkNorm(q=q, k=k) if config.flag("use_qk_norm", False) else None
    rope, bias = (
        plain_rope(head_dim, config.rope_base(8000000.0), traditional=True),
        config.flag("attention_bias", False),
    )
    return parallel(config, config.attention(head_dim=head_dim, rope=rope, bias=bias, qk_norm=normed), rules=())
