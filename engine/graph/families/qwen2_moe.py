"""qwen2_moe: biases on q, k and v, softmax routing, and a shared expert behind a sigmoid gate."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, rope
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.renames import ROTARY, stacked
from engine.graph.spec import ArchSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    head_dim = even_head_dim(config)
    moe = MoeSpec(
        experts=config.positive("num_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(score="softmax", normalise="sum" if config.flag("norm_topk_prob", False) else None),
        expert=mlp(config, hidden=config.positive("moe_intermediate_size")),
        shared=mlp(config, hidden=config.positive("shared_expert_intermediate_size")),
        shared_at="shared_expert",
        shared_gate="shared_expert_gate",
    )
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim, 1000000.0), qkv_bias=True)
    layers = sparse_layers(config, attn, moe)
    return arch(config, layers, tied=False, rules=(ROTARY, *stacked("mlp", "switch_mlp")))
