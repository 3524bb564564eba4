"""qwen2_moe: biases on q, k and v, softmax routing, and a shared expert behind a sigmoid gate."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, moe, rope
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    head_dim = even_head_dim(config)
    router = RouterSpec(score="softmax", normalise="sum" if config.flag("norm_topk_prob", False) else None)
    beside = mlp(config, hidden=config.positive("shared_expert_intermediate_size"))
    sparse = moe(config, router, shared=beside, shared_at="shared_expert", shared_gate="shared_expert_gate")
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim, 1000000.0), qkv_bias=True)
    return arch(config, sparse_layers(config, attn, sparse), tied=False, more_rules=stacked("mlp", "switch_mlp"))
