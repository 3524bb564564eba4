"""What the bits of a row may depend on, as modes of one code path.

composition: the bits of mlx-lm's batch at the same composition. invariant: those of the row alone, whatever runs beside
it. fast: rows share every forward, lie in one padded buffer, and packed products take them as one matrix; nothing is
said about bits.

On the CPU with MLX's own BLAS the three are one: a product of B rows has the bits of each row's own, and padding that a
mask hides changes none. Rows lie in one padded buffer there, since that is fastest (`frontier bench batch`), or keep
their own caches: for `invariant`, under a budget, and where caches are packed, rings or states. With OpenBLAS the bits
of a dense product depend on B (`frontier bench batch --bits`), and on a GPU those of attention on any mask too. There
`composition` lets rows lie as mlx-lm's batch does (engine.kv.batched), and is refused where that has no such batch, or
none that is right; a row that must not change runs its own forward. Nobody who asks for nothing is refused: on a GPU he
has `composition` where it can be had, with a lone row as in mlx-lm's plain decoding, else `invariant`; with OpenBLAS
rows share forwards, and nothing is claimed between shapes.
"""

from __future__ import annotations

import sys
from typing import Literal

from engine.errors import InvalidValue, NotBuilt
from engine.graph.oracle_batch import NoBatch, no_oracle_batch
from engine.graph.rows import unfit_for_rows
from engine.graph.spec import ArchSpec
from engine.kv.padded import fit_for_padding
from engine.kv.plan import KVPlan
from engine.kv.rotating import RotatingKV

# Multiplications and additions that a CPU does in about the time that a forward's operations take by themselves.
# Prompts share a forward up to there; beyond it the last would only hold up the first.
SHARED_FLOP = {"bundled": 2e7, "openblas": 1e9}

Rows = Literal["together", "one by one", "padded", "batched", "alone or batched"]
Fit = Literal["all", "some", "none"]


def fit_of(layers: list[bool]) -> Fit:
    """How many of the caches can lie in one padded buffer."""
    return "all" if layers and all(layers) else "some" if any(layers) else "none"


def shared_tokens(blas: str, parameters: int, chunk: int) -> int:
    """Tokens of a forward of several prompts on a CPU, padding counted; at most a chunk."""
    return min(chunk, int(SHARED_FLOP["bundled" if blas == "bundled" else "openblas"] / (2 * parameters)))


def prompt_share(mode: str, device: str, blas: str, parameters: int, chunk: int) -> int:
    """Tokens of a forward of several prompts, padding counted. On a GPU as many as there are for `fast`: that is the
    faster way. Rows in mlx-lm's batch always share them all, which is not asked here."""
    if device != "cpu" and mode == "fast":
        return sys.maxsize
    return shared_tokens(blas, parameters, chunk)


def modes_of(
    asked: str,
    device: str,
    blas: str,
    spec: ArchSpec,
    kv: KVPlan,
    family: str,
    budgets: dict[str, int | None],
    prefixes: bool,
) -> tuple[str, Rows]:
    """`resolve_mode` for a model and a plan. family: its model_type; budgets: field -> bytes, None where not set;
    prefixes: whether what prompts begin with is kept."""
    unfit, beside = (unfit_for_rows(spec, one_buffer=one) for one in (False, True))
    budget = next((name for name, value in budgets.items() if value is not None), "")
    without = no_oracle_batch(spec, kv, family)
    if prefixes and without is None and any(isinstance(cache, RotatingKV) for cache in kv.fresh()):
        without = NoBatch("a ring in mlx-lm's batch holds other tokens than one that a prefix is kept of", theirs=False)
    return resolve_mode(asked, device, blas, unfit, fit_of(fit_for_padding(kv)), budget, beside=beside, without=without)


def resolve_mode(
    asked: str,
    device: str,
    blas: str,
    unfit: str,
    fit: Fit,
    budget: str = "",
    *,
    beside: str | None = None,
    without: NoBatch | None = None,
) -> tuple[str, Rows]:
    """The mode and how rows run. device: "cpu" or a GPU's kind; blas: its name, "bundled" for MLX's own; unfit: why
    this graph takes no rows of unequal length in one forward, or ""; fit: which caches can be padded; budget: the field
    of a budget that is set, or ""; beside: as `unfit`, for rows in one buffer, where that differs; without: why rows
    cannot lie as in mlx-lm's batch.

    Raises `InvalidValue` for the bits of a batch that mlx-lm has not, `NotBuilt` for those that cannot be had here, and
    `InvalidValue` for padding that no budget counts.
    """
    pads = not (unfit if beside is None else beside) and fit != "none"
    if asked == "fast":
        if pads and budget:
            raise InvalidValue(
                "batch_mode", asked, f"auto or invariant while {budget} is set: padding is not projected"
            )
        return asked, "padded" if pads else "one by one" if unfit else "together"
    if device == "cpu" and (asked != "composition" or blas == "bundled"):
        mode = "composition" if asked == "auto" else asked
        if mode == "composition" and pads and not budget:
            return mode, "padded"
        return mode, "one by one" if unfit or (mode == "invariant" and blas != "bundled") else "together"
    if asked == "invariant":
        return asked, "one by one"
    if asked == "auto":
        return ("invariant", "one by one") if budget or without else ("composition", "alone or batched")
    where = device if device != "cpu" else blas
    if budget:
        raise InvalidValue("batch_mode", asked, f"auto or invariant while {budget} is set: padding is not projected")
    if without is not None and without.theirs:
        raise InvalidValue("batch_mode", asked, f"auto, invariant or fast on {where}: {without.why}")
    if without is not None:
        raise NotBuilt(f"batch_mode=composition on {where} ({without.why})", "use invariant or fast")
    return asked, "batched"
