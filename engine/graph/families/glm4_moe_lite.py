"""glm4_moe_lite: deepseek_v3 with the config's epsilon in every norm and one in the sum of the picked scores."""

from dataclasses import replace

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.deepseek_v3 import latent, mixture
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.latent import SplitHeads
from engine.graph.renames import DropLayers, stacked
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["glm4_moe_lite"])
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    attn = latent(config, eps=config.number("rms_norm_eps"))
    made = config.layers(attn, mixture(config, replace(grouped_router(config), eps=1e-20)))
    return config.arch(
        made, tied=False, more_rules=(DropLayers(len(made)), SplitHeads(attn), *stacked("mlp", "switch_mlp"))
    )
