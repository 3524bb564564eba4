"""cohere: both mixers read one layer norm and are added to its input; a scaled, tied head."""

from engine.graph.families.common import (
    Config,
    arch,
    attention,
    even_head_dim,
    layer_norm,
    mlp,
    plain_rope,
    rope_base,
)
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, NormSpec, QkNorm


def spec(config: Config) -> ArchSpec:
    head_dim, eps = even_head_dim(config), config.number("layer_norm_eps", 1e-5)
    bias, norm_bias = config.flag("attention_bias", False), config.flag("layer_norm_bias", False)

    def on_heads(key: str) -> NormSpec:
        return NormSpec(key=key, eps=eps, kind="layer_heads")

    qk_norm = QkNorm(q=on_heads("q_norm"), k=on_heads("k_norm")) if config.flag("use_qk_norm", False) else None
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            rope=plain_rope(head_dim, rope_base(config, 8000000.0), traditional=True),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=qk_norm,
        ),
        mlp=mlp(config),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps, norm_bias)),
        flow="parallel",
    )
    head = HeadSpec(tied=True, multiply=config.number("logit_scale", 0.0625))
    return arch(config, layer, tied=True, norm=layer_norm("model.norm", eps, norm_bias), head=head, rules=())
