"""afmoe: norms around both mixers, sliding layers with a rope beside full ones without, gated attention, sigmoid
routing with a bias in the ranking, and a scaled embedding."""

import math
from typing import Any

from engine.graph.families.common import ArchSpec, Config, GateSpec, RouterSpec, StemSpec, stacked


def spec(config: Config) -> ArchSpec:
    score: Any = config.choice("score_func", ("sigmoid", "softmax"), "sigmoid") + "_float32"
    ranked: dict[str, Any] = {"score": score, "correction": "expert_bias", **config.group_limits()}
    weighed: dict[str, Any] = {"normalise": "sum" if config.flag("route_norm", True) else None, "only_above_one": True}
    router = RouterSpec(key="router.gate", scale=config.number("route_scale"), **ranked, **weighed)
    sparse = config.moe(router, at="experts", cast=True, shared="num_shared_experts")
    turned, dense = config.rope(config.positive("head_dim")), config.count("num_dense_layers")
    shared: dict[str, Any] = {"qk_norm": config.qk_heads(), "gate": GateSpec(key="gate_proj")}
    return config.decoder(
        [config.attention(rope=turned if w else None, **shared, **w) for w in config.window_layers()],
        lambda i: config.mlp() if i < dense else sparse,
        norms=config.norms("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
        stem=StemSpec(scale=math.sqrt(config.positive("hidden_size")) if config.flag("mup_enabled", True) else None),
        tied=config.tied(False),
        more_rules=stacked("mlp", "experts"),
    )
