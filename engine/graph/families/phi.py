"""phi: attention, always in float32, and a plain MLP read the same layer norm in parallel; biases everywhere."""

import math

from engine.graph.families.common import Config, arch, attention, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms

DEFAULTS = {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200}


def spec(config: Config) -> ArchSpec:
    config = config.replaced(**{name: config.read(name, value) for name, value in DEFAULTS.items()})
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    eps = config.number("layer_norm_eps", 1e-5)
    rotated = int(config.number("partial_rotary_factor", 0.4) * head_dim)
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            scale=math.sqrt(1 / head_dim),
            rope=plain_rope(rotated, config.number("rope_theta", 10000.0)),
            o="dense",
            qkv_bias=True,
            out_bias=True,
            float32="always",
        ),
        mlp=MlpSpec(
            hidden=config.positive("intermediate_size", 10240),
            act="gelu_approx",
            gate=None,
            up="fc1",
            down="fc2",
            bias=True,
        ),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps)),
        flow="parallel",
    )
    norm = layer_norm("model.final_layernorm", eps)
    return arch(config, layer, tied=False, norm=norm, head=HeadSpec(tied=False, bias=True), rules=())
