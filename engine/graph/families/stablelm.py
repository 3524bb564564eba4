"""stablelm: layer norms, a partial rope, attention in float32; on a switch parallel mixers and a norm per head."""

import math

from engine.graph.families.common import ArchSpec, Config, NormSpec, QkNorm, layer_norm, layer_norms, plain_rope


def spec(config: Config) -> ArchSpec:
    dim, heads, eps = (
        config.positive("hidden_size"),
        config.positive("num_attention_heads"),
        config.number("layer_norm_eps"),
    )
    if dim % heads:
        raise config.invalid("num_attention_heads", heads, f"a divisor of hidden_size={dim}")
    head_dim, parallel = dim // heads, config.flag("use_parallel_residual", False)
    q, k = (NormSpec(key=key, eps=eps, kind="layer_stacked") for key in ("q_layernorm", "k_layernorm"))
    normed = QkNorm(q=q, k=k) if config.flag("qk_layernorm", False) else None
    rope = plain_rope(int(config.number("partial_rotary_factor") * head_dim), config.number("rope_theta"))
    sizes = {"head_dim": head_dim, "kv_heads": config.positive("num_key_value_heads"), "scale": math.sqrt(1 / head_dim)}
    return config.decoder(
        config.attention(rope=rope, qkv_bias=config.flag("use_qkv_bias"), qk_norm=normed, float32="always", **sizes),
        config.mlp(),
        norms=layer_norms(eps, second=None if parallel else "post_attention_layernorm"),
        flow="parallel_residual" if parallel else "sequential",
        tied=False,
        norm=layer_norm("model.norm", eps),
        rules=(),
    )
