"""solar_open: glm4_moe with defaults of its own."""

from engine.graph.families import glm4_moe
from engine.graph.families.common import DEFAULTS, Config
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    return glm4_moe.spec(config.defaulted(DEFAULTS["solar_open"]))
