"""exaone_moe: sliding layers with a rope beside full ones without (a rope everywhere where none slides), norms on
query and key heads, grouped sigmoid routing in the layers that is_moe_layer names."""

from dataclasses import replace

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope, window_layers
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.renames import ROTARY, UNTIE, Drop, Rename, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec

_DEFAULTS = {"norm_topk_prob": True, "routed_scaling_factor": 2.5}


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(_DEFAULTS)
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    head_dim, hidden = config.positive("head_dim"), config.positive("moe_intermediate_size")
    shared = config.count("num_shared_experts", 0)
    moe = MoeSpec(
        experts=config.positive("num_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=replace(grouped_router(config), eps=1e-20),
        expert=mlp(config, hidden=hidden),
        cast=True,
        shared=mlp(config, hidden=hidden * shared) if shared else None,
    )
    windows = window_layers(config)
    nested = config.inner("rope_parameters").get("rope_theta") if config.get("rope_parameters") else None
    # The nested base goes before the flat one.
    turned = rope(config.replaced(rope_theta=nested or config.get("rope_theta")), head_dim, 1000000.0)
    layers = [
        LayerSpec(
            attention=attention(
                config, rope=turned if window or not any(windows) else None, qk_norm=qk_heads(config), **window
            ),
            mlp=moe if sparse else mlp(config),
            norms=pre_norms(config),
        )
        for window, sparse in zip(windows, config.each("is_moe_layer"), strict=True)
    ]
    tied = config.flag("tie_word_embeddings", False)
    rules = (
        ROTARY,
        Drop((r"^mtp\.",)),
        *((UNTIE,) if tied else ()),
        Rename(r"\.mlp\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"),
        *stacked("mlp", "switch_mlp"),
    )
    return arch(config, layers, tied=tied, rules=rules)
