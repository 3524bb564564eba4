"""olmo: llama with layer norms without weights and fused projections; known, and not run."""

from engine.errors import NotBuilt
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    """Raises NotBuilt: mlx-lm's module ends the process without hf_olmo, and fails on every prompt with it (register:
    "olmo-prompt-crashes")."""
    raise NotBuilt("olmo", "mlx-lm's module needs the package hf_olmo and fails on a prompt, so there is no reference")
