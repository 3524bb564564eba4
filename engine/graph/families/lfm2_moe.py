"""lfm2_moe: lfm2 with sigmoid routing after some dense layers; a bias counts in the ranking only."""

import mlx.core as mx

from engine.graph.families import lfm2
from engine.graph.families.common import ArchSpec, Change, Config, Rename, RouterSpec, stacked


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(
        score="sigmoid",
        correction="expert_bias" if config.flag("use_expert_bias") else None,
        pick="back",
        normalise="sum" if config.flag("norm_topk_prob") else None,
        eps=1e-6,
        scale=config.number("routed_scaling_factor", 1.0),
        cast="input",
    )
    sparse, dense, first = config.moe(router), config.mlp(), config.count("num_dense_layers")
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    renamed = (Rename(rf"\.{old}\.weight$", f".{new}.weight") for old, new in names.items())
    # Ranked in float32, whatever dtype the bias is stored in.
    wide = Change(r"\.expert_bias$", lambda bias: bias.astype(mx.float32))
    rules = (*renamed, *stacked("feed_forward", "switch_mlp"), wide)
    return lfm2.arch(config, lambda i: dense if i < first else sparse, *rules)
