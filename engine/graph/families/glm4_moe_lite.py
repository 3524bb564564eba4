"""glm4_moe_lite: deepseek_v3 with the config's epsilon in every norm and one in the sum of the picked scores."""

from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.deepseek_v3 import built, latent
from engine.graph.latent import SplitHeads


def spec(config: Config) -> ArchSpec:
    attn = latent(config, eps=config.number("rms_norm_eps"))
    return built(config, attn, SplitHeads(attn), eps=1e-20)
