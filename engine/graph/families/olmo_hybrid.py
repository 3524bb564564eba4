"""olmo_hybrid: gated delta nets whose queries, keys and values have a convolution each, behind norms, and olmo2's
attention layers with norms after the mixers; no rope where rope_theta is null."""

from engine.graph.families.common import ArchSpec, Config, LayerSpec
from engine.graph.families.olmo2 import post_norms
from engine.graph.families.qwen3_next import delta
from engine.graph.renames import FILTERS


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim", config.even_head_dim())
    nested = config.inner("rope_parameters") if config.get("rope_parameters") is not None else config
    theta = nested.get("rope_theta", 10000.0)
    rope = None if theta is None else config.replaced(rope_theta=theta).rope(head_dim)
    bias, feed = config.flag("attention_bias"), config.mlp(act="silu")
    full = config.attention(head_dim=head_dim, rope=rope, bias=bias, qk_norm=config.qk_heads("flat"))
    linear = delta(config, "apart", config.number("layer_norm_epsilon", 1e-5), config.flag("linear_allow_neg_eigval"))
    layers = {
        "full_attention": LayerSpec(attention=full, mlp=feed, norms=post_norms(config)),
        "linear_attention": LayerSpec(attention=linear, attn_key="linear_attn", mlp=feed, norms=config.pre_norms()),
    }
    count = config.positive("num_hidden_layers")
    kinds = config.each("layer_types", [("full" if i % 4 == 3 else "linear") + "_attention" for i in range(count)])
    for kind in kinds:
        if kind not in layers:
            raise config.invalid("layer_types", kind, layers)
    return config.arch([layers[kind] for kind in kinds], tied=config.tied(), more_rules=(FILTERS,))
