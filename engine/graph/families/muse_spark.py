"""muse_spark: gated residuals and compressed experts over a float32 stream; known, and not run."""

from engine.errors import NotBuilt
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    """Raises NotBuilt: mlx-lm runs its norms and routing in Metal kernels, so there is no reference elsewhere."""
    raise NotBuilt("muse_spark", "mlx-lm runs it with kernels for Metal only, so nothing here could be checked")
