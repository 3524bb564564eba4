"""llama, and mistral, which mlx-lm runs through the same module (its sliding_window is not applied there either)."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, positive, read
from engine.graph.spec import ArchSpec, MlpSpec


def spec(config: Config) -> ArchSpec:
    bias = bool(read(config, "attention_bias", False))
    mlp = MlpSpec(hidden=positive(config, "intermediate_size"), bias=bool(read(config, "mlp_bias", False)))
    return arch(config, attention(config, qkv_bias=bias, out_bias=bias), mlp=mlp)
