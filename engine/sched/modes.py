"""What the bits of a row may depend on, as modes of one code path.

composition: the bits of mlx-lm's batch at the same composition. invariant: those of the row alone, whatever runs beside
it. fast: rows share every forward, and nothing is said about bits.

On the CPU with MLX's own BLAS the three are one: a product of B rows has the bits of each row's own, so rows share
forwards. With OpenBLAS nothing is claimed between shapes, and rows share them too. On a GPU the bits of a product
depend on B, and any mask changes those of attention: a row that must not change runs its own forward, and mlx-lm's
padded batch is not built.
"""

from __future__ import annotations

from typing import Literal

from engine.errors import NotBuilt

Rows = Literal["together", "one by one"]


def resolve_mode(asked: str, device: str, unfit: str) -> tuple[str, Rows]:
    """The mode and how rows run. device: "cpu" or a GPU's kind; unfit: why this graph takes no rows of unequal length
    in one forward, or "".

    Raises `NotBuilt` for the bits of mlx-lm's batch where rows would have to be padded for them.
    """
    if device == "cpu":
        mode = "composition" if asked == "auto" else asked
        return mode, "one by one" if unfit else "together"
    if asked == "composition":
        raise NotBuilt(f"batch_mode=composition on {device}", "use invariant or fast")
    mode = "invariant" if asked == "auto" else asked
    return mode, "one by one" if unfit or mode == "invariant" else "together"
