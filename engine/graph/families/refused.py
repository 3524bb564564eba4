"""Modules of mlx-lm that are known and not run: there is no reference that anything could be checked against."""

from engine.errors import NotBuilt
from engine.graph.families.common import ArchSpec, Config

_METAL = "mlx-lm runs it with kernels for Metal only, so nothing here could be checked"


def metal_only(config: Config) -> ArchSpec:
    """bitnet: ternary weights, and norms inside of the mixers; muse_spark: gated residuals and compressed experts over
    a float32 stream. Raises NotBuilt."""
    raise NotBuilt(config["model_type"], _METAL)


def olmo(config: Config) -> ArchSpec:
    """Raises NotBuilt: mlx-lm's module ends the process without hf_olmo, and fails on every prompt with it (register:
    "olmo-prompt-crashes")."""
    raise NotBuilt("olmo", "mlx-lm's module needs the package hf_olmo and fails on a prompt, so there is no reference")
