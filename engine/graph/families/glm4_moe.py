"""glm4_moe: group-limited sigmoid routing with a correction bias after some dense layers, a rope on part of a head."""

from dataclasses import replace
from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope
from engine.graph.renames import ROTARY, Drop, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


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


def sparse_from(config: Config, dense: LayerSpec, sparse: Any) -> list[LayerSpec]:
    """`dense` layers, whose MLP is `sparse` from first_k_dense_replace on."""
    first, count = config.count("first_k_dense_replace"), config.positive("num_hidden_layers")
    return [dense if i < first else replace(dense, mlp=sparse) for i in range(count)]


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = attention(
        config,
        head_dim=head_dim,
        rope=rope(config, int(head_dim * config.number("partial_rotary_factor"))),
        qkv_bias=config.flag("attention_bias"),
        qk_norm=qk_heads(config) if config.flag("use_qk_norm") else None,
    )
    for key, known in (("topk_method", "noaux_tc"), ("scoring_func", "sigmoid")):
        if config.read(key, known) != known:
            raise InvalidValue(f"config.json {key}", config[key], known)
    dense = LayerSpec(attention=attn, mlp=mlp(config), norms=pre_norms(config))
    layers, hidden = config.positive("num_hidden_layers"), config.positive("moe_intermediate_size")
    made = [dense] * layers
    if config.read("n_routed_experts", None) is not None:
        shared = config.read("n_shared_experts", None)
        sparse = MoeSpec(
            experts=config.positive("n_routed_experts"),
            top_k=config.positive("num_experts_per_tok"),
            router=grouped_router(config),
            expert=mlp(config, hidden=hidden),
            cast=True,
            shared=mlp(config, hidden=hidden * config.positive("n_shared_experts")) if shared is not None else None,
        )
        made = sparse_from(config, dense, sparse)
    further = Drop((rf"^model\.layers\.{layers}\.",))  # predicts more tokens than the next one
    return arch(config, made, tied=False, rules=(ROTARY, further, *stacked("mlp", "switch_mlp")))
