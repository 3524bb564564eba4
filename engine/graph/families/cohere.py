"""cohere: both mixers read one layer norm and are added to its input; a scaled, tied head."""

from engine.graph.families.common import Config, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, NormSpec, QkNorm


def spec(config: Config) -> ArchSpec:
    head_dim, eps = config.even_head_dim(), config.number("layer_norm_eps", 1e-5)
    bias, norm_bias = config.flag("attention_bias", False), config.flag("layer_norm_bias", False)

    def on_heads(key: str) -> NormSpec:
        return NormSpec(key=key, eps=eps, kind="layer_heads")

    qk_norm = QkNorm(q=on_heads("q_norm"), k=on_heads("k_norm")) if config.flag("use_qk_norm", False) else None
    layer = LayerSpec(
        attention=config.attention(
            head_dim=head_dim,
            rope=plain_rope(head_dim, config.rope_base(8000000.0), traditional=True),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=qk_norm,
        ),
        mlp=config.mlp(),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps, norm_bias)),
        flow="parallel",
    )
    head = HeadSpec(tied=True, multiply=config.number("logit_scale", 0.0625))
    return config.arch(layer, tied=True, norm=layer_norm("model.norm", eps, norm_bias), head=head, rules=())
