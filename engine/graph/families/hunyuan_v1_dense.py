"""hunyuan_v1_dense: norms on query and key heads after the rope, whose base is enlarged once by alpha."""

from engine.graph.families.common import Config
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, LayerSpec, RopeSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", config.even_head_dim()), config.flag("attention_bias", False)
    alpha = config.inner("rope_scaling").number("alpha") if config.get("rope_scaling") else 1.0
    on_heads = config.qk_heads("rotated", "query_layernorm", "key_layernorm")
    attn = config.attention(
        head_dim=head_dim,
        rope=RopeSpec(dims=head_dim, base=config.rope_base(10000.0), scaling={"type": "ntk-alpha", "alpha": alpha}),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=on_heads if config.flag("use_qk_norm", True) else None,
    )
    tied = config.flag("tie_word_embeddings", False)
    layer = LayerSpec(attention=attn, mlp=config.mlp(), norms=config.pre_norms())
    return config.arch(layer, tied=tied, rules=(UNTIE,) if tied else ())
