"""qwen2_moe: biases on q, k and v, softmax routing, and a shared expert behind a sigmoid gate."""

from engine.graph.families.common import ArchSpec, Config, RouterSpec, stacked
from engine.graph.families.qwen3_moe import sparse_layers


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(score="softmax", normalise=config.to_sum(default=False))
    beside = config.mlp(hidden=config.positive("shared_expert_intermediate_size"))
    sparse = config.moe(router, shared=beside, shared_at="shared_expert", shared_gate="shared_expert_gate")
    attn = config.attention(head_dim=config.even_head_dim(), theta=1000000.0, qkv_bias=True)
    return config.arch(sparse_layers(config, attn, sparse), tied=False, more_rules=stacked("mlp", "switch_mlp"))
