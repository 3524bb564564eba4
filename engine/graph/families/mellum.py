"""mellum: qwen3_moe's mixture in every layer, and a rope of its own for sliding and for full layers."""

from engine.graph.families.common import Config
from engine.graph.families.laguna import kind_rope
from engine.graph.families.qwen3_moe import softmax_moe
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    windows = config.window_layers()
    attn = [config.attention(rope=kind_rope(config, w), qk_norm=config.qk_heads(), **w) for w in windows]
    made = config.layers(attn.__getitem__, softmax_moe(config, cast=False))
    return config.arch(made, tied=config.flag("tie_word_embeddings"), more_rules=stacked("mlp", "switch_mlp"))
