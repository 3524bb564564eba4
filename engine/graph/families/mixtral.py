"""mixtral: llama with experts in place of the MLP, weighted by a softmax over the chosen ones."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, rope
from engine.graph.families.minimax import EXPERT_NAMES
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    moe = MoeSpec(
        experts=config.positive("num_local_experts", 8),
        top_k=config.positive("num_experts_per_tok", 2),
        router=RouterSpec(score="logits", selected="softmax"),
        expert=mlp(config),
    )
    head_dim = even_head_dim(config)
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim, 1e6))
    layer = LayerSpec(attention=attn, mlp=moe, mlp_key="block_sparse_moe", norms=pre_norms(config))
    tied = config.flag("tie_word_embeddings", False)
    rules = (ROTARY, *((UNTIE,) if tied else ()), *stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES))
    return arch(config, layer, tied=tied, rules=rules)
