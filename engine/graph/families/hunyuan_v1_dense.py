"""hunyuan_v1_dense: norms on query and key heads after the rope, whose base is enlarged once by alpha."""

from engine.graph.families.common import (
    Config,
    arch,
    attention,
    even_head_dim,
    mlp,
    pre_norms,
    qk_heads,
    rope_base,
)
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, LayerSpec, RopeSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", even_head_dim(config)), config.flag("attention_bias", False)
    alpha = config.inner("rope_scaling").number("alpha") if config.get("rope_scaling") else 1.0
    on_heads = qk_heads(config, "rotated", "query_layernorm", "key_layernorm")
    attn = attention(
        config,
        head_dim=head_dim,
        rope=RopeSpec(dims=head_dim, base=rope_base(config, 10000.0), scaling={"type": "ntk-alpha", "alpha": alpha}),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=on_heads if config.flag("use_qk_norm", True) else None,
    )
    tied = config.flag("tie_word_embeddings", False)
    layer = LayerSpec(attention=attn, mlp=mlp(config), norms=pre_norms(config))
    return arch(config, layer, tied=tied, rules=(UNTIE,) if tied else ())
