"""mellum: qwen3_moe's mixture in every layer, and a rope of its own for sliding and for full layers."""

from engine.graph.families.common import Config, arch, attention, layers, qk_heads, window_layers
from engine.graph.families.laguna import kind_rope
from engine.graph.families.qwen3_moe import softmax_moe
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    windows = window_layers(config)
    attn = [attention(config, rope=kind_rope(config, w), qk_norm=qk_heads(config), **w) for w in windows]
    made = layers(config, attn.__getitem__, softmax_moe(config, cast=False))
    return arch(config, made, tied=config.flag("tie_word_embeddings"), more_rules=stacked("mlp", "switch_mlp"))
