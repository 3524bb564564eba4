"""dots1: a norm on each query and key head, group-limited sigmoid routing, shared experts, a stack named `experts`."""

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads
from engine.graph.families.glm4_moe import grouped_router, sparse_from
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec


def spec(config: Config) -> ArchSpec:
    bias, hidden = config.flag("mlp_bias", False), config.positive("moe_intermediate_size")
    attn = attention(config, qk_norm=qk_heads(config))
    sparse = MoeSpec(
        experts=config.positive("n_routed_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=grouped_router(config),
        expert=mlp(config, hidden=hidden),
        at="experts",
        cast=True,
        shared=mlp(config, hidden=hidden * config.positive("n_shared_experts"), bias=bias),
    )
    tied = config.flag("tie_word_embeddings", False)
    rules = (ROTARY, *stacked("mlp", "experts"), *((UNTIE,) if tied else ()))
    layer = LayerSpec(attention=attn, mlp=mlp(config, bias=bias), norms=pre_norms(config))
    return arch(config, sparse_from(config, layer, sparse), tied=tied, rules=rules)
