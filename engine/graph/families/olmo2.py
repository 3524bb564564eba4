"""olmo2: norms after the mixers only, and a norm over all query (key) heads together."""

from __future__ import annotations

from engine.graph.families.common import ROTARY_BUFFERS, Config, arch, attention, positive, read
from engine.graph.spec import ArchSpec, MlpSpec, Norms


def spec(config: Config) -> ArchSpec:
    bias = bool(read(config, "attention_bias", False))
    return arch(
        config,
        attention(config, qkv_bias=bias, out_bias=bias, qk_norm="flat"),
        mlp=MlpSpec(hidden=positive(config, "intermediate_size"), bias=bool(read(config, "mlp_bias", False))),
        norms=Norms(post_attn="post_attention_layernorm", post_mlp="post_feedforward_layernorm"),
        dropped=ROTARY_BUFFERS,
    )
