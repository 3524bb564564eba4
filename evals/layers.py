"""Where the error enters: the residual streams of two arms after each layer, position by position.

The relative error of a layer is RMS(cand - ref) / RMS(ref) of a position's stream, from fp32 values, then the mean over
positions. What a layer adds shows as a step over the layer before; a later layer can also shrink it. The logit lens
sends both streams through each arm's own final norm and head, as if the layer were the last one, and takes
KL(ref || cand) of the two: an error counts there as far as the head sees it. Its value after the last layer is the KL.

Letters: N scored positions, M layers with the embedding, D of a stream (all streams of a position together), V
vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import errors
from evals.bootstrap import Interval, mean_by_sequence
from evals.breakdown import by_label
from evals.kl import BadLogits, kl_divergence
from evals.protocol import Plan
from oracles.contract import Trace

EMBEDDING = -1


@dataclass(frozen=True, eq=False)
class Streams:
    """One arm's scored positions of one sequence: layer -> residual stream [N, D] and, with the lens, logits [N, V]."""

    residuals: Mapping[int, np.ndarray]
    lens: Mapping[int, np.ndarray]

    @classmethod
    def of(cls, trace: Trace, plan: Plan) -> Streams:
        """What a trace holds of them, in fp32."""
        return cls(
            {i: _wide(array[plan.rows.start :]) for i, array in _named(trace, "layer.")},
            {i: _wide(array) for i, array in _named(trace, "lens.")},
        )


@dataclass(frozen=True, eq=False)
class LayerScores:
    """Of one sequence, per layer: relative errors [M, N] and the lens' KL [M, N] in nats, None without it."""

    layers: tuple[int, ...]
    errors: np.ndarray
    lens_kl: np.ndarray | None


@dataclass(frozen=True)
class LayerResult:
    """One layer over all sequences; -1 is the embedding. error: relative, no unit; lens_kl: nats, None without lens."""

    layer: int
    error: Interval
    lens_kl: Interval | None
    error_by_domain: Mapping[str, Interval]
    lens_kl_by_domain: Mapping[str, Interval]

    @property
    def name(self) -> str:
        """As tables and figures call it."""
        return "embedding" if self.layer == EMBEDDING else str(self.layer)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def score_layers(reference: Streams, candidate: Streams) -> LayerScores:
    """Compare two arms layer by layer.

    Raises `errors.InvalidValue` for arms whose layers do not pair, `BadLogits` for streams that are not finite and for
    a reference stream of zeros.
    """
    ours, theirs = ({i: a.shape for i, a in sorted(arm.residuals.items())} for arm in (reference, candidate))
    if not ours or ours != theirs or reference.lens.keys() != candidate.lens.keys():
        raise errors.InvalidValue("layers", _shapes(theirs), f"the reference's: {_shapes(ours)}")
    layers = tuple(ours)
    found = np.stack([_relative(reference.residuals[i], candidate.residuals[i], i) for i in layers])
    lens = [kl_divergence(reference.lens[i], candidate.lens[i]) for i in layers if i in reference.lens]
    return LayerScores(layers, found, np.stack(lens) if lens else None)


def layer_results(parts: Sequence[LayerScores], labels: Sequence[str] | None) -> tuple[LayerResult, ...]:
    """Each layer over all sequences, the embedding first."""
    results = []
    for row, layer in enumerate(parts[0].layers):
        rows = [part.errors[row] for part in parts]
        lens = [part.lens_kl[row] for part in parts if part.lens_kl is not None]
        results.append(
            LayerResult(
                layer=layer,
                error=mean_by_sequence(rows),
                lens_kl=mean_by_sequence(lens) if lens else None,
                error_by_domain={} if labels is None else by_label(rows, labels),
                lens_kl_by_domain={} if labels is None or not lens else by_label(lens, labels),
            )
        )
    return tuple(results)


def steps(results: Sequence[LayerResult]) -> list[float]:
    """By how much each layer's mean relative error exceeds that of the layer before."""
    errors_ = [result.error.value for result in results]
    return [after - before for before, after in itertools.pairwise((0.0, *errors_))]


def _named(trace: Trace, prefix: str) -> list[tuple[int, Any]]:
    return [(int(name.removeprefix(prefix)), a) for name, a in trace.tensors.items() if name.startswith(prefix)]


def _wide(array: Any) -> np.ndarray:
    """Rows of fp32; further axes are one."""
    import mlx.core as mx

    return np.array(array.astype(mx.float32)).reshape(array.shape[0], -1)


def _relative(reference: np.ndarray, candidate: np.ndarray, layer: int) -> np.ndarray:
    wide = reference.astype(np.float64)
    size = np.sqrt((wide**2).mean(axis=1))
    off = np.sqrt(((candidate - wide) ** 2).mean(axis=1))
    if not (np.isfinite(off).all() and np.isfinite(size).all() and (size > 0).all()):
        raise BadLogits(f"the residual stream after layer {layer} is not finite, or zero in the reference")
    return np.asarray(off / size)


def _shapes(shapes: Mapping[int, tuple[int, ...]]) -> str:
    return f"{len(shapes)} of {', '.join(sorted({str(list(shape)) for shape in shapes.values()})) or 'none'}"
