"""Klear: sigmoid routing with a correction bias, and a softmax that weighs the experts against the shared ones."""

from engine.graph.families.common import ArchSpec, Config, RouterSpec, stacked
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.mixtures import BlendedMoeSpec


def spec(config: Config) -> ArchSpec:
    bias, sparse = config.flag("attention_bias"), None
    attn = config.attention(head_dim=config.even_head_dim(), bias=bias, qk_norm=config.qk_heads())
    if config.count("num_experts"):
        normalise = config.to_sum()
        router = RouterSpec(score="sigmoid_float32", correction="expert_bias", normalise=normalise, cast="input")
        width = config.positive("moe_intermediate_size") * config.positive("n_shared_experts")
        sparse = BlendedMoeSpec(moe=config.moe(router, at="experts"), shared=config.mlp(hidden=width))
    return config.arch(sparse_layers(config, attn, sparse), tied=False, more_rules=stacked("mlp", "experts"))
