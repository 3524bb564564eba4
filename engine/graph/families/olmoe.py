"""olmoe: a norm over all query (key) heads together, and experts with softmax routing in every layer."""

from engine.graph.families.common import ArchSpec, Config, RouterSpec, stacked


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(score="softmax", normalise=config.to_sum(default=False))
    attn = config.attention(bias=config.flag("attention_bias", False), qk_norm=config.qk_heads("flat"))
    sparse = config.moe(router, hidden="intermediate_size", bias=config.flag("mlp_bias", False))
    return config.decoder(attn, sparse, more_rules=stacked("mlp", "switch_mlp"))
