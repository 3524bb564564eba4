"""mellum: qwen3_moe's mixture in every layer, and a rope of its own for sliding and for full layers."""

from engine.graph.families.common import ArchSpec, Config, stacked
from engine.graph.families.laguna import kind_rope
from engine.graph.families.qwen3_moe import softmax_moe


def spec(config: Config) -> ArchSpec:
    ropes = [{"rope": kind_rope(config, window), **window} for window in config.window_layers()]
    attn = [config.attention(qk_norm=config.qk_heads(), **fields) for fields in ropes]
    sparse = softmax_moe(config, cast=False)
    return config.decoder(attn, sparse, tied=config.tied(), more_rules=stacked("mlp", "switch_mlp"))
