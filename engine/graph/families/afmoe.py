"""afmoe: norms around both mixers, sliding layers with a rope beside full ones without, gated attention, sigmoid
routing with a bias in the ranking, and a scaled embedding."""

import math
from typing import Any

from engine.graph.families.common import DEFAULTS, Config, arch, attention, mlp, qk_heads, rms, rope, window_layers
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, GateSpec, LayerSpec, MoeSpec, Norms, RouterSpec, StemSpec

_SCORES: dict[str, Any] = {"sigmoid": "sigmoid_float32", "softmax": "softmax_float32"}


def _moe(config: Config) -> MoeSpec:
    hidden, shared = config.positive("moe_intermediate_size"), config.count("num_shared_experts", 1)
    return MoeSpec(
        experts=config.positive("num_experts", 128),
        top_k=config.positive("num_experts_per_tok", 8),
        router=RouterSpec(
            key="router.gate",
            score=_SCORES[config.choice("score_func", _SCORES, "sigmoid")],
            correction="expert_bias",
            groups=config.positive("n_group", 1),
            kept_groups=config.positive("topk_group", 1),
            normalise="sum" if config.flag("route_norm", True) else None,
            only_above_one=True,
            scale=config.number("route_scale", 2.826),
        ),
        expert=mlp(config, hidden=hidden),
        at="experts",
        cast=True,
        shared=mlp(config, hidden=hidden * shared) if shared else None,
    )


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["afmoe"])
    moe, dense = _moe(config), config.count("num_dense_layers", 2)
    norms = Norms(
        pre_attn=rms(config, "input_layernorm"),
        post_attn=rms(config, "post_attention_layernorm"),
        pre_mlp=rms(config, "pre_mlp_layernorm"),
        post_mlp=rms(config, "post_mlp_layernorm"),
    )
    layers = []
    for i, window in enumerate(window_layers(config)):
        turned = rope(config, config.positive("head_dim")) if window else None
        attn = attention(config, rope=turned, qk_norm=qk_heads(config), gate=GateSpec(key="gate_proj"), **window)
        layers.append(LayerSpec(attention=attn, mlp=mlp(config) if i < dense else moe, norms=norms))
    tied = config.flag("tie_word_embeddings", False)
    scale = math.sqrt(config.positive("hidden_size")) if config.flag("mup_enabled", True) else None
    rules = (ROTARY, *((UNTIE,) if tied else ()), *stacked("mlp", "experts"))
    return arch(config, layers, stem=StemSpec(scale=scale), tied=tied, rules=rules)
