"""cohere2: cohere without norms on heads; every n-th layer is global and has no rope; float16 attends in float32."""

from engine.graph.families.cohere import parallel
from engine.graph.families.common import ArchSpec, Config, plain_rope


def spec(config: Config) -> ArchSpec:
    kinds, bias = config.full_every(config.positive("sliding_window_pattern")), config.flag("attention_bias", False)
    rope = plain_rope(config.positive("head_dim"), config.number("rope_theta"), traditional=True)
    every = [{"rope": rope if window else None, **window} for window in config.windows(kinds)]
    return parallel(config, [config.attention(bias=bias, float32="float16", **fields) for fields in every])
