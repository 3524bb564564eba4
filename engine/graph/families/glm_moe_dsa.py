"""glm_moe_dsa: deepseek_v32 with the rope under rope_parameters."""

from engine.graph.families import deepseek_v32
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    base = config.inner("rope_parameters").number("rope_theta")
    return deepseek_v32.spec(config.replaced(rope_scaling=None, rope_theta=base), pairs=True)
