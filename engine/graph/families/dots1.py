"""dots1: a norm on each query and key head, group-limited sigmoid routing, shared experts, a stack named `experts`."""

from engine.graph.families.common import ArchSpec, Config, stacked
from engine.graph.families.glm4_moe import grouped_router


def spec(config: Config) -> ArchSpec:
    bias, hidden = config.flag("mlp_bias", False), config.positive("moe_intermediate_size")
    shared = config.mlp(hidden=hidden * config.positive("n_shared_experts"), bias=bias)
    sparse = config.moe(grouped_router(config), experts="n_routed_experts", shared=shared, at="experts", cast=True)
    attn, first = config.attention(qk_norm=config.qk_heads()), config.count("first_k_dense_replace")
    made = config.layers(attn, lambda i: config.mlp(bias=bias) if i < first else sparse)
    return config.arch(made, tied=config.tied(False), more_rules=stacked("mlp", "experts"))
