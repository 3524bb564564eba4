"""What the bits of a row may depend on, as modes of one code path.

composition: the bits of mlx-lm's batch at the same composition. invariant: those of the row alone, whatever runs beside
it. fast: rows share every forward, lie in one padded buffer, and packed products take them as one matrix; nothing is
said about bits.

On the CPU with MLX's own BLAS the three are one: a product of B rows has the bits of each row's own, and padding that a
mask hides changes none. Rows lie in one padded buffer there, since that is fastest (`frontier bench batch`), or keep
their own caches: for `invariant`, under a budget, and where caches are packed, rings or states. With OpenBLAS the bits
of a dense product depend on B (`frontier bench batch --bits`), and nothing is claimed between shapes: rows share
forwards, but for `invariant`. On a GPU they depend on B too, and any mask changes those of attention: `composition`
pads and masks as mlx-lm does, prompts too, so that rows which arrive together have its bits; a row that must not change
runs its own forward.
"""

from __future__ import annotations

import sys
from typing import Literal

from engine.errors import InvalidValue, NotBuilt

# Multiplications and additions that a CPU does in about the time that a forward's operations take by themselves.
# Prompts share a forward up to there; beyond it the last would only hold up the first.
SHARED_FLOP = {"bundled": 2e7, "openblas": 1e9}

Rows = Literal["together", "one by one", "padded"]
Fit = Literal["all", "some", "none"]


def fit_of(layers: list[bool]) -> Fit:
    """How many of the caches can lie in one padded buffer."""
    return "all" if layers and all(layers) else "some" if any(layers) else "none"


def shared_tokens(blas: str, parameters: int, chunk: int) -> int:
    """Tokens of a forward of several prompts on a CPU, padding counted; at most a chunk."""
    return min(chunk, int(SHARED_FLOP["bundled" if blas == "bundled" else "openblas"] / (2 * parameters)))


def prompt_share(mode: str, device: str, blas: str, parameters: int, chunk: int) -> int:
    """Tokens of a forward of several prompts, padding counted. On a GPU as many as there are: `composition` has
    mlx-lm's bits so, and for `fast` prompts that share a forward are the faster way."""
    if device != "cpu" and mode in ("composition", "fast"):
        return sys.maxsize
    return shared_tokens(blas, parameters, chunk)


def resolve_mode(
    asked: str, device: str, blas: str, unfit: str, fit: Fit, budget: str = "", *, beside: str | None = None
) -> tuple[str, Rows]:
    """The mode and how rows run. device: "cpu" or a GPU's kind; blas: its name, "bundled" for MLX's own; unfit: why
    this graph takes no rows of unequal length in one forward, or ""; fit: which caches can be padded; budget: the field
    of a budget that is set, or ""; beside: as `unfit`, for rows in one buffer, where that differs.

    Raises `NotBuilt` for the bits of mlx-lm's batch where they need more than padded caches, and `InvalidValue` for
    padding that no budget counts.
    """
    pads = not (unfit if beside is None else beside) and fit != "none"
    if asked == "fast":
        if pads and budget:
            raise InvalidValue(
                "batch_mode", asked, f"auto or invariant while {budget} is set: padding is not projected"
            )
        return asked, "padded" if pads else "one by one" if unfit else "together"
    if device == "cpu":
        mode = "composition" if asked == "auto" else asked
        if mode == "composition" and pads and not budget:
            return mode, "padded"
        return mode, "one by one" if unfit or (mode == "invariant" and blas != "bundled") else "together"
    why = unfit or (budget and f"{budget} is set, and padding is not projected") or ""
    why = why or ("" if fit == "all" else "some caches are packed, rings or states")
    if asked == "composition" and why:
        raise NotBuilt(f"batch_mode=composition on {device} ({why})", "use invariant or fast")
    return ("invariant", "one by one") if asked == "invariant" or why else ("composition", "padded")
