"""kimi_vl, kimi_k25: deepseek_v3 as the text tower of a vision wrapper."""

from engine.graph.families import family_spec
from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.towers import text_tower


def spec(config: Config) -> ArchSpec:
    return text_tower(config, family_spec("deepseek_v3", config.inner("text_config")))
