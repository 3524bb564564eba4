"""mixtral: llama with experts in place of the MLP, weighted by a softmax over the chosen ones."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.minimax import EXPERT_NAMES
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["mixtral"])
    router = RouterSpec(score="logits", selected="softmax")
    made = config.layers(
        config.attention(head_dim=config.even_head_dim()),
        config.moe(experts="num_local_experts", hidden="intermediate_size", router=router),
        mlp_key="block_sparse_moe",
    )
    rules = stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES)
    return config.arch(made, tied=config.flag("tie_word_embeddings"), more_rules=rules)
