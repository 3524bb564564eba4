"""What the bits of a row may depend on, as modes of one code path.

composition: the bits of mlx-lm's batch at the same composition. invariant: those of the row alone, whatever runs beside
it. fast: rows share every forward, lie in one padded buffer, and packed products take them as one matrix; nothing is
said about bits.

On the CPU with MLX's own BLAS the three are one: a product of B rows has the bits of each row's own, so rows share
forwards. With OpenBLAS the bits of a dense product depend on B (`frontier bench batch --bits`), and nothing is claimed
between shapes: rows share forwards, but for `invariant`. On a GPU they depend on B too, and any mask changes those of
attention. A row that must not change runs its own forward, and mlx-lm's padded batch is not built.
"""

from __future__ import annotations

from typing import Literal

from engine.errors import NotBuilt

Rows = Literal["together", "one by one", "padded"]


def resolve_mode(asked: str, device: str, blas: str, unfit: str) -> tuple[str, Rows]:
    """The mode and how rows run. device: "cpu" or a GPU's kind; blas: its name, "bundled" for MLX's own; unfit: why
    this graph takes no rows of unequal length in one forward, or "".

    Raises `NotBuilt` for the bits of mlx-lm's batch where rows would have to be padded for them.
    """
    if asked == "fast" and not unfit:
        return asked, "padded"
    if device == "cpu":
        mode = "composition" if asked == "auto" else asked
        alone = unfit or (mode == "invariant" and blas != "bundled")
        return mode, "one by one" if alone else "together"
    if asked == "composition":
        raise NotBuilt(f"batch_mode=composition on {device}", "use invariant or fast")
    mode = "invariant" if asked == "auto" else asked
    return mode, "one by one" if unfit or mode == "invariant" else "together"
