"""stablelm: layer norms, a partial rope, attention in float32; on a switch parallel mixers and a norm per head."""

import math

from engine.errors import InvalidValue
from engine.graph.families.common import Config, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, Norms, NormSpec, QkNorm


def spec(config: Config) -> ArchSpec:
    dim, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    eps = config.number("layer_norm_eps")
    if dim % heads:
        raise InvalidValue("config.json num_attention_heads", heads, f"a divisor of hidden_size={dim}")
    head_dim, parallel = dim // heads, config.flag("use_parallel_residual", False)
    q, k = (NormSpec(key=key, eps=eps, kind="layer_stacked") for key in ("q_layernorm", "k_layernorm"))
    attn = config.attention(
        head_dim=head_dim,
        kv_heads=config.positive("num_key_value_heads"),
        scale=math.sqrt(1 / head_dim),
        rope=plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number("rope_theta")),
        qkv_bias=config.flag("use_qkv_bias"),
        qk_norm=QkNorm(q=q, k=k) if config.flag("qk_layernorm", False) else None,
        float32="always",
    )
    norms = Norms(
        pre_attn=layer_norm("input_layernorm", eps),
        pre_mlp=None if parallel else layer_norm("post_attention_layernorm", eps),
    )
    layer = LayerSpec(
        attention=attn, mlp=config.mlp(), norms=norms, flow="parallel_residual" if parallel else "sequential"
    )
    return config.arch(layer, tied=False, norm=layer_norm("model.norm", eps), rules=())
