"""Exact comparison of two traces. Equal means every value equal; there is no tolerance here and none may be added."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """The first difference of a comparison.

    tensor: the array's name, or "tokens". position: the first row (token position or step) that differs; None when
    shapes, dtypes or names differ. max_abs_diff: over all rows; infinite where one side is not finite. rows: how many
    differ.
    """

    tensor: str
    why: str
    position: int | None = None
    max_abs_diff: float | None = None
    rows: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON form; an infinite difference becomes the word "inf"."""
        document = asdict(self)
        if self.max_abs_diff is not None and not np.isfinite(self.max_abs_diff):
            document["max_abs_diff"] = "inf"
        return document


def compare_arrays(name: str, reference: Any, candidate: Any) -> Difference | None:
    """None when equal. Rows are the first axis. NaN against the same NaN is no difference; a NaN in both is still
    reported, because a trace of NaN proves nothing."""
    if reference.dtype != candidate.dtype:
        return Difference(name, f"dtype {candidate.dtype} instead of {reference.dtype}")
    if tuple(reference.shape) != tuple(candidate.shape):
        return Difference(name, f"shape {tuple(candidate.shape)} instead of {tuple(reference.shape)}")
    a, b = _float64(reference), _float64(candidate)
    both_nan = np.isnan(a) & np.isnan(b)
    unequal = ~((a == b) | both_nan)
    if unequal.any():
        with np.errstate(invalid="ignore"):
            gaps = np.abs(a - b)[unequal]
        rows = unequal.reshape(len(a), -1).any(axis=1)
        worst = float(np.where(np.isnan(gaps), np.inf, gaps).max())
        return Difference(name, "values differ", int(rows.argmax()), worst, int(rows.sum()))
    if both_nan.any():
        rows = both_nan.reshape(len(a), -1).any(axis=1)
        return Difference(name, "NaN on both sides", int(rows.argmax()), None, int(rows.sum()))
    return None


def compare_tokens(reference: Sequence[int], candidate: Sequence[int]) -> Difference | None:
    """None when equal, else the first step at which the tokens part."""
    for step, (a, b) in enumerate(zip(reference, candidate, strict=False)):
        if a != b:
            return Difference("tokens", f"token {b} instead of {a}", step)
    if len(reference) != len(candidate):
        shorter = min(len(reference), len(candidate))
        return Difference("tokens", f"{len(candidate)} tokens instead of {len(reference)}", shorter)
    return None


def compare_tensors(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> Difference | None:
    """The first difference over all arrays, in the reference's order of names."""
    for name in reference:
        if name not in candidate:
            return Difference(name, "missing")
    for name in candidate:
        if name not in reference:
            return Difference(name, "not in the reference")
    for name in reference:
        found = compare_arrays(name, reference[name], candidate[name])
        if found is not None:
            return found
    return None


def first_layer(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> Difference | None:
    """Where two traces part first: from the embedding on ("layer.-1", "layer.0", ...), then the logits."""
    names = sorted((n for n in reference if n.startswith("layer.")), key=lambda n: int(n.split(".")[1]))
    for name in [*names, "logits"]:
        if name not in candidate:
            return Difference(name, "missing")
        found = compare_arrays(name, reference[name], candidate[name])
        if found is not None:
            return found
    return None


def array_sha256(array: Any) -> str:
    """Of an array's exact values: equal for equal values, whatever their dtype."""
    return hashlib.sha256(_float64(array).tobytes()).hexdigest()


def _float64(array: Any) -> np.ndarray:
    """Every MLX float value, exactly. bfloat16 passes through float32, which holds it."""
    import mlx.core as mx

    exact = array.astype(mx.float32) if array.dtype in (mx.bfloat16, mx.float16) else array
    return np.array(exact).astype(np.float64)
