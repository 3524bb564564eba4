"""deepseek_v2: latent attention that keeps every head's keys and values, yarn, softmax routing by the groups' best."""

from engine.graph.families.common import DEFAULTS, ArchSpec, Config, RouterSpec, stacked
from engine.graph.families.deepseek_v3 import latent, mixture

BY_GROUP = "group_limited_greedy"


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({**DEFAULTS["deepseek_v3"], "norm_topk_prob": False})
    config.choice("scoring_func", ("softmax",), "softmax")
    if config.get("norm_topk_prob"):
        raise config.invalid("norm_topk_prob", True, "false: scores are scaled, never divided")
    grouped = config.choice("topk_method", ("greedy", "gready", BY_GROUP), "greedy") == BY_GROUP
    limits = config.group_limits() if grouped else {}
    scale = config.number("routed_scaling_factor")
    router = RouterSpec(raw=True, score="softmax", strength="best", scale=scale, **limits)
    attn, feed = latent(config, kept="heads"), mixture(config, router, cast=False)
    return config.decoder(attn, feed, tied=False, more_rules=stacked("mlp", "switch_mlp"))
