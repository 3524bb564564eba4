"""glm4_moe: group-limited sigmoid routing with a correction bias after some dense layers, a rope on part of a head."""

from engine.graph.families.common import Config
from engine.graph.renames import Drop, stacked
from engine.graph.spec import ArchSpec, MlpSpec, MoeSpec, RouterSpec


def grouped_router(config: Config) -> RouterSpec:
    """Sigmoid scores of a bare matrix, ranked with a bias inside the best groups, normalised and scaled."""
    return RouterSpec(
        raw=True,
        score="sigmoid_float32",
        correction="gate.e_score_correction_bias",
        groups=config.positive("n_group", 1),
        kept_groups=config.positive("topk_group", 1),
        normalise="sum" if config.flag("norm_topk_prob") else None,
        only_above_one=True,
        scale=config.number("routed_scaling_factor"),
        compiled=True,
    )


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = config.attention(
        rope=config.rope(int(head_dim * config.number("partial_rotary_factor"))),
        qkv_bias=config.flag("attention_bias"),
        qk_norm=config.qk_heads() if config.flag("use_qk_norm") else None,
    )
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    dense: MlpSpec = config.mlp()
    sparse: MlpSpec | MoeSpec = dense
    if config.read("n_routed_experts", None) is not None:
        router = grouped_router(config)
        sparse = config.moe(experts="n_routed_experts", shared="n_shared_experts", router=router, cast=True)
    first = config.count("first_k_dense_replace")
    made = config.layers(attn, lambda i: sparse if i >= first else dense)
    further = Drop((rf"^model\.layers\.{len(made)}\.",))  # predicts more tokens than the next one
    return config.arch(made, tied=False, more_rules=(further, *stacked("mlp", "switch_mlp")))
