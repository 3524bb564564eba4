"""phi: attention, always in float32, and a plain MLP read the same layer norm in parallel; biases everywhere."""

import math

from engine.graph.families.common import DEFAULTS, Config, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["phi"])
    head_dim, eps = config.even_head_dim(), config.number("layer_norm_eps")
    rope = plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number("rope_theta"))
    fields = {"head_dim": head_dim, "scale": math.sqrt(1 / head_dim), "float32": "always", "o": "dense"}
    layer = LayerSpec(
        attention=config.attention(rope=rope, bias=True, **fields),
        mlp=config.mlp(act="gelu_approx", gate=None, up="fc1", down="fc2", bias=True),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps)),
        flow="parallel",
    )
    norm = layer_norm("model.final_layernorm", eps)
    return config.arch(layer, tied=False, norm=norm, head=HeadSpec(tied=False, bias=True), rules=())
