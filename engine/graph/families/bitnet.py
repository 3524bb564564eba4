"""bitnet: llama with ternary weights and norms inside of the mixers; known, and not run."""

from engine.errors import NotBuilt
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    """Raises NotBuilt: mlx-lm multiplies ternary weights in a Metal kernel, so there is no reference elsewhere."""
    raise NotBuilt("bitnet", "mlx-lm runs it with a kernel for Metal only, so nothing here could be checked")
