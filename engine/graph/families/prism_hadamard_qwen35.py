"""prism_hadamard_qwen35: qwen3_5 packed in 2 bits after a rotation of each map's input, as its manifest says."""

from dataclasses import replace
from typing import Any

from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.qwen3_5 import tower
from engine.graph.families.towers import text_tower
from engine.graph.hadamard import Blocks

NAMESPACES = {1: "mlx-lm-text", 2: "mlx-vlm-qwen3_5"}
PACKING = {"bits": 2, "group_size": 128, "mode": "affine"}
SIZES = (0, 512, 1024, 2048, 4096, 8192)


def _blocks(config: Config) -> Blocks:
    """The manifest: by module its block of the rotation."""
    sizes: dict[str, int] = {}
    for given in config.holding("modules", list):
        record: dict[str, Any] = given if isinstance(given, dict) else {}
        path, size = str(record.get("path")), record.get("block", -1)
        fits = size in SIZES and record.get("dtype") == "float16" and path not in sizes
        if not fits or record.get("embedding") is not (path == "model.embed_tokens"):
            allowed = f"each path once; embedding: whether it is one; dtype: float16; block: one of {SIZES}"
            raise config.invalid("modules", given, allowed)
        sizes[path] = size
    if not sizes:
        raise config.invalid("modules", [], "the packed modules")
    return Blocks(sizes)


def spec(config: Config) -> ArchSpec:
    version = config.positive("schema_version", 2)
    if version not in NAMESPACES:
        raise config.invalid("schema_version", version, NAMESPACES)
    config.choice("tensor_namespace", (NAMESPACES[version],))
    config.choice("gdn_activation_layout", ("grouped",), "grouped")
    if config.get("quantization") != PACKING:
        raise config.invalid("quantization", config.get("quantization"), str(PACKING))
    config.holding("text_config", dict)
    inner = tower(config)
    return text_tower(config, replace(inner, rules=(*inner.rules, _blocks(config))))
