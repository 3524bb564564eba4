"""gemma2: norms around both mixers with weights stored as w for 1 + w, scaled embedding, two soft-caps, tied head."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, number, positive, rope
from engine.graph.spec import ArchSpec, MlpSpec, Norms


def spec(config: Config) -> ArchSpec:
    head_dim = positive(config, "head_dim")
    attn = attention(
        config,
        rope=rope(config, head_dim),
        scale=1.0 / (number(config, "query_pre_attn_scalar", 144.0) ** 0.5),
        softcap=number(config, "attn_logit_softcapping", 50.0),
    )
    return arch(
        config,
        attn,
        mlp=MlpSpec(hidden=positive(config, "intermediate_size"), activation="gelu_approx"),
        norms=Norms(
            pre_attn="input_layernorm",
            post_attn="post_attention_layernorm",
            pre_mlp="pre_feedforward_layernorm",
            post_mlp="post_feedforward_layernorm",
        ),
        tied=True,
        norm_offset=1.0,
        embed_scale=positive(config, "hidden_size") ** 0.5,
        final_softcap=number(config, "final_logit_softcapping", 30.0),
        dropped=(),
    )
