"""olmoe: a norm over all query (key) heads together, and experts with softmax routing in every layer."""

from engine.graph.families.common import Config
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(score="softmax", normalise="sum" if config.flag("norm_topk_prob", False) else None)
    made = config.layers(
        config.attention(bias=config.flag("attention_bias", False), qk_norm=config.qk_heads("flat")),
        config.moe(hidden="intermediate_size", router=router, bias=config.flag("mlp_bias", False)),
    )
    return config.arch(made, more_rules=stacked("mlp", "switch_mlp"))
