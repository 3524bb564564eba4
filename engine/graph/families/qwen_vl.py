"""qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe: qwen2, qwen3 or qwen3_moe as the text tower of a vision wrapper, whose
config is under text_config or is the whole."""

from dataclasses import replace

from engine.graph.families import qwen2, qwen3, qwen3_moe
from engine.graph.families.common import Config
from engine.graph.families.towers import head_tied, text_tower
from engine.graph.renames import transposed_experts
from engine.graph.spec import ArchSpec


def _text(config: Config) -> Config:
    return head_tied(config, config.inner("text_config")) if "text_config" in config else config


def spec2(config: Config) -> ArchSpec:
    return text_tower(config, qwen2.spec(_text(config)))


def spec3(config: Config) -> ArchSpec:
    return text_tower(config, qwen3.spec(_text(config)))


def spec3_moe(config: Config) -> ArchSpec:
    inner = qwen3_moe.spec(_text(config))
    return text_tower(config, replace(inner, rules=(*transposed_experts("mlp", "switch_mlp"), *inner.rules)))
