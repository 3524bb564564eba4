"""cohere2: cohere without norms on heads; every n-th layer is global and has no rope; float16 attends in float32."""

from engine.graph.families.common import DEFAULTS, Config, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, Norms


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["cohere2"])
    eps, bias = config.number("layer_norm_eps"), config.flag("attention_bias", False)
    norm_bias, kinds = (
        config.flag("layer_norm_bias", False),
        config.full_every(config.positive("sliding_window_pattern")),
    )
    rope = plain_rope(config.positive("head_dim"), config.number("rope_theta"), traditional=True)
    attn = [
        config.attention(rope=rope if window else None, bias=bias, float32="float16", **window)
        for window in config.windows(kinds)
    ]
    norms = Norms(pre_attn=layer_norm("input_layernorm", eps, norm_bias))
    return config.arch(
        config.layers(attn.__getitem__, config.mlp(), norms=norms, flow="parallel"),
        tied=True,
        norm=layer_norm("model.norm", eps, norm_bias),
        head=HeadSpec(tied=True, multiply=config.number("logit_scale")),
    )
