"""afmoe: norms around both mixers, sliding layers with a rope beside full ones without, gated attention, sigmoid
routing with a bias in the ranking, and a scaled embedding."""

import math
from typing import Any

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, GateSpec, Norms, RouterSpec, StemSpec

_SCORES: dict[str, Any] = {"sigmoid": "sigmoid_float32", "softmax": "softmax_float32"}


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["afmoe"])
    router = RouterSpec(
        key="router.gate",
        score=_SCORES[config.choice("score_func", _SCORES, "sigmoid")],
        correction="expert_bias",
        groups=config.positive("n_group", 1),
        kept_groups=config.positive("topk_group", 1),
        normalise="sum" if config.flag("route_norm", True) else None,
        only_above_one=True,
        scale=config.number("route_scale"),
    )
    sparse = config.moe(router, at="experts", cast=True, shared="num_shared_experts")
    norms = Norms(
        pre_attn=config.rms("input_layernorm"),
        post_attn=config.rms("post_attention_layernorm"),
        pre_mlp=config.rms("pre_mlp_layernorm"),
        post_mlp=config.rms("post_mlp_layernorm"),
    )
    turned, dense = config.rope(config.positive("head_dim")), config.count("num_dense_layers")
    shared: dict[str, Any] = {"qk_norm": config.qk_heads(), "gate": GateSpec(key="gate_proj")}
    attn = [config.attention(rope=turned if w else None, **shared, **w) for w in config.window_layers()]
    return config.arch(
        config.layers(attn.__getitem__, lambda i: config.mlp() if i < dense else sparse, norms=norms),
        stem=StemSpec(scale=math.sqrt(config.positive("hidden_size")) if config.flag("mup_enabled", True) else None),
        tied=config.flag("tie_word_embeddings", False),
        more_rules=stacked("mlp", "experts"),
    )
