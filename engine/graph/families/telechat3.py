"""telechat3: llama with an untied head by default, and its own name for yarn."""

from engine.graph.families import llama
from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    return llama.needing_kv_heads(config, rules=())
