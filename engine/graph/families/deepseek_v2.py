"""deepseek_v2: latent attention that keeps every head's keys and values, yarn, softmax routing by the groups' best."""

from engine.errors import InvalidValue
from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.deepseek_v3 import latent, mixture
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, RouterSpec

BY_GROUP = "group_limited_greedy"


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({**DEFAULTS["deepseek_v3"], "norm_topk_prob": False})
    config.choice("scoring_func", ("softmax",), "softmax")
    if config.get("norm_topk_prob"):
        raise InvalidValue(f"config.json {config.path}norm_topk_prob", True, "false: scores are scaled, never divided")
    grouped = config.choice("topk_method", ("greedy", "gready", BY_GROUP), "greedy") == BY_GROUP
    router = RouterSpec(
        raw=True,
        score="softmax",
        groups=config.positive("n_group") if grouped else 1,
        kept_groups=config.positive("topk_group") if grouped else 1,
        strength="best",
        scale=config.number("routed_scaling_factor"),
    )
    made = config.layers(latent(config, kept="heads"), mixture(config, router, cast=False))
    return config.arch(made, tied=False, more_rules=stacked("mlp", "switch_mlp"))
