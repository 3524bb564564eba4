"""phi: attention, always in float32, and a plain MLP read the same layer norm in parallel; biases everywhere."""

import math

from engine.graph.families.common import ArchSpec, Config, HeadSpec, layer_norm, layer_norms, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, eps = config.even_head_dim(), config.number("layer_norm_eps")
    rope = plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number("rope_theta"))
    fields = {"head_dim": head_dim, "scale": math.sqrt(1 / head_dim), "float32": "always", "o": "dense"}
    return config.decoder(
        config.attention(rope=rope, bias=True, **fields),
        config.mlp(act="gelu_approx", gate=None, up="fc1", down="fc2", bias=True),
        norms=layer_norms(eps, second=None),
        flow="parallel",
        norm=layer_norm("model.final_layernorm", eps),
        head=HeadSpec(tied=False, bias=True),
        rules=(),
    )
