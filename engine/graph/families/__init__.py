"""Families: config.json's model_type -> the function that turns a config into an `ArchSpec`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import UnknownField

if TYPE_CHECKING:
    from engine.graph.spec import ArchSpec

FAMILIES: dict[str, str] = {
    "gemma2": "engine.graph.families.gemma2:spec",
    "glm4": "engine.graph.families.glm4:spec",
    "llama": "engine.graph.families.llama:spec",
    "mistral": "engine.graph.families.llama:spec",
    "olmo2": "engine.graph.families.olmo2:spec",
    "qwen2": "engine.graph.families.qwen2:spec",
    "qwen3": "engine.graph.families.qwen3:spec",
}


def build_spec(config: Mapping[str, Any]) -> ArchSpec:
    """The spec of a config.json; an unknown model_type is `UnknownField` and lists the known ones."""
    from engine.graph.families.common import Config

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UnknownField("config.json model_type", str(model_type), FAMILIES)
    module, symbol = FAMILIES[model_type].split(":")
    read = config if isinstance(config, Config) else Config(config)
    spec: ArchSpec = getattr(importlib.import_module(module), symbol)(read)
    return spec
