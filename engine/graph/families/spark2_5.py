"""spark2_5: fused q, k, v, a sigmoid gate per head in float32, an exact gelu, a partial rope per layer kind."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, plain_rope
from engine.graph.renames import Rename
from engine.graph.spec import ArchSpec, AttentionSpec, GateSpec, RopeSpec, StemSpec

_FIXED = {"hidden_act": "gelu", "gate_attn_act_mode": "sigmoid", "headwise_attn_output_gate": True}


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({"rms_norm_eps": 1e-6})
    for key, value in _FIXED.items():
        if config.read(key, value) != value:
            raise InvalidValue(f"config.json {key}", config[key], repr(value))
    bias, ropes = config.flag("attention_bias", False), config.inner("rope_parameters")
    every = config.window_layers(config.full_every(4))
    gate = GateSpec(key="g_proj", per_head=True, float32=True, bias=bias)

    def attn(i: int) -> AttentionSpec:
        kind = "sliding_attention" if every[i] else "full_attention"
        rope = _rope(ropes.inner(kind), config.positive("head_dim"))
        return config.attention(rope=rope, qkv="q_k_v_proj", o="out_proj", bias=bias, gate=gate, **every[i])

    return config.arch(
        config.layers(attn, config.mlp(act="gelu", bias=config.flag("mlp_bias", False))),
        stem=StemSpec(key="model.embedding"),
        more_rules=(Rename(r"^model\.embed_tokens\.", "model.embedding."),),
    )


def _rope(config: Config, head_dim: int) -> RopeSpec:
    dims = int(head_dim * config.number("partial_rotary_factor", 1.0))
    if not 0 < dims <= head_dim or dims % 2:
        raise InvalidValue(f"config.json {config.path}partial_rotary_factor", dims, f"an even part of {head_dim}")
    return plain_rope(dims, config.number("rope_theta", 10000.0))
