"""mixtral: llama with experts in place of the MLP, weighted by a softmax over the chosen ones."""

from engine.graph.families.common import ArchSpec, Config, RouterSpec, stacked
from engine.graph.families.minimax import EXPERT_NAMES


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(score="logits", selected="softmax")
    sparse = config.moe(router, experts="num_local_experts", hidden="intermediate_size")
    attn, at = config.attention(head_dim=config.even_head_dim()), "block_sparse_moe"
    rules = stacked(at, "switch_mlp", EXPERT_NAMES)
    return config.decoder(attn, sparse, mlp_key=at, tied=config.tied(), more_rules=rules)
