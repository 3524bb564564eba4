"""mellum: qwen3_moe's mixture in every layer, and a rope of its own for sliding and for full layers."""

from engine.graph.families.common import Config, arch, attention, pre_norms, qk_heads, window_layers
from engine.graph.families.laguna import kind_rope
from engine.graph.families.qwen3_moe import softmax_moe
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    moe, tied = softmax_moe(config, cast=False), config.flag("tie_word_embeddings")
    layers = [
        LayerSpec(
            attention=attention(config, rope=kind_rope(config, window), qk_norm=qk_heads(config), **window),
            mlp=moe,
            norms=pre_norms(config),
        )
        for window in window_layers(config)
    ]
    rules = (ROTARY, *((UNTIE,) if tied else ()), *stacked("mlp", "switch_mlp"))
    return arch(config, layers, tied=tied, rules=rules)
