"""glm4_moe: group-limited sigmoid routing with a correction bias after some dense layers, a rope on part of a head."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, Drop, MlpSpec, MoeSpec, RouterSpec, stacked


def grouped_router(config: Config, **changes: Any) -> RouterSpec:
    """Sigmoid scores of a bare matrix, ranked with a bias inside the best groups, normalised and scaled."""
    ranked: dict[str, Any] = {"score": "sigmoid_float32", "correction": "gate.e_score_correction_bias"}
    weighed = {"normalise": "sum" if config.flag("norm_topk_prob") else None, "only_above_one": True, "raw": True}
    scale = config.number("routed_scaling_factor")
    return RouterSpec(**{**ranked, **config.group_limits(), **weighed, "scale": scale, "compiled": True, **changes})


def routed(config: Config, router: RouterSpec, **changes: Any) -> MoeSpec | MlpSpec:
    """n_routed_experts beside shared ones, or the dense MLP where the config names none."""
    if config.get("n_routed_experts") is None:
        return config.mlp()
    return config.moe(router, experts="n_routed_experts", shared="n_shared_experts", **changes)


def spec(config: Config) -> ArchSpec:
    attn = config.attention(
        rope=config.rope(int(config.positive("head_dim") * config.number("partial_rotary_factor"))),
        qkv_bias=config.flag("attention_bias"),
        qk_norm=config.qk_heads() if config.flag("use_qk_norm") else None,
    )
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    dense, sparse = config.mlp(), routed(config, grouped_router(config), cast=True)
    first = config.count("first_k_dense_replace")
    made = config.layers(attn, lambda i: sparse if i >= first else dense)
    further = Drop((rf"^model\.layers\.{len(made)}\.",))  # predicts more tokens than the next one
    return config.arch(made, tied=False, more_rules=(further, *stacked("mlp", "switch_mlp")))
