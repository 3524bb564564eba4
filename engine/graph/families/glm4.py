"""glm4: norms around both mixers, gate and up in one matrix, rope on part of a head in the traditional order."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, number, positive, read, rope
from engine.graph.spec import ArchSpec, MlpSpec, Norms


def spec(config: Config) -> ArchSpec:
    head_dim = positive(config, "head_dim")
    rotated = int(head_dim * number(config, "partial_rotary_factor"))
    attn = attention(
        config,
        rope=rope(config, rotated, read(config, "rope_theta"), traditional=True),
        qkv_bias=bool(read(config, "attention_bias")),
    )
    return arch(
        config,
        attn,
        mlp=MlpSpec(hidden=positive(config, "intermediate_size"), fused=True),
        norms=Norms(
            pre_attn="input_layernorm",
            post_attn="post_self_attn_layernorm",
            pre_mlp="post_attention_layernorm",
            post_mlp="post_mlp_layernorm",
        ),
        tied=False,
        dropped=(),
    )
