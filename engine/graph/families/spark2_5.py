"""spark2_5: fused q, k, v, a sigmoid gate per head in float32, an exact gelu, a partial rope per layer kind."""

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, GateSpec, RopeSpec, StemSpec, plain_rope
from engine.graph.renames import Rename

_FIXED = {"hidden_act": "gelu", "gate_attn_act_mode": "sigmoid", "headwise_attn_output_gate": True}


def spec(config: Config) -> ArchSpec:
    for key, value in _FIXED.items():
        if config.read(key, value) != value:
            raise config.invalid(key, config[key], repr(value))
    bias, ropes = config.flag("attention_bias", False), config.inner("rope_parameters")
    every = config.window_layers(config.full_every(4))
    gate = GateSpec(key="g_proj", per_head=True, float32=True, bias=bias)

    def attn(i: int) -> AttentionSpec:
        kind = "sliding_attention" if every[i] else "full_attention"
        rope = _rope(ropes.inner(kind), config.positive("head_dim"))
        return config.attention(rope=rope, qkv="q_k_v_proj", o="out_proj", bias=bias, gate=gate, **every[i])

    feed, stem = config.mlp(act="gelu", bias=config.flag("mlp_bias", False)), StemSpec(key="model.embedding")
    return config.decoder(attn, feed, stem=stem, more_rules=(Rename(r"^model\.embed_tokens\.", "model.embedding."),))


def _rope(config: Config, head_dim: int) -> RopeSpec:
    dims = int(head_dim * config.number("partial_rotary_factor", 1.0))
    if not 0 < dims <= head_dim or dims % 2:
        raise config.invalid("partial_rotary_factor", dims, f"an even part of {head_dim}")
    return plain_rope(dims, config.number("rope_theta", 10000.0))
