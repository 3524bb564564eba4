"""cohere2: cohere without norms on heads; every n-th layer is global and has no rope; float16 attends in float32."""

from engine.graph.families.common import (
    DEFAULTS,
    Config,
    arch,
    attention,
    full_every,
    layer_norm,
    layers,
    mlp,
    plain_rope,
    windows,
)
from engine.graph.spec import ArchSpec, HeadSpec, Norms


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["cohere2"])
    eps, bias = config.number("layer_norm_eps"), config.flag("attention_bias", False)
    norm_bias, kinds = (
        config.flag("layer_norm_bias", False),
        full_every(config, config.positive("sliding_window_pattern")),
    )
    rope = plain_rope(config.positive("head_dim"), config.number("rope_theta"), traditional=True)
    attn = [
        attention(config, rope=rope if window else None, bias=bias, float32="float16", **window)
        for window in windows(config, kinds)
    ]
    norms = Norms(pre_attn=layer_norm("input_layernorm", eps, norm_bias))
    return arch(
        config,
        layers(config, attn.__getitem__, mlp(config), norms=norms, flow="parallel"),
        tied=True,
        norm=layer_norm("model.norm", eps, norm_bias),
        head=HeadSpec(tied=True, multiply=config.number("logit_scale")),
    )
