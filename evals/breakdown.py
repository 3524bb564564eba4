"""Where KL lies: by position, by domain, and the positions of the largest one with their text.

Letters: S sequences, N scored positions of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.bootstrap import Interval, mean_by_sequence
from evals.kl import PositionScores
from evals.protocol import Plan

WORST, CONTEXT = 5, 12
MOST_SPANS = 16


@dataclass(frozen=True)
class Worst:
    """One position of the largest KL, in nats. context: the token ids up to it, and the next one, its target."""

    sequence: int
    position: int
    kl: float
    context: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """Mean KL in nats over the positions `first` to `last` of all sequences."""

    first: int
    last: int
    kl: Interval


def worst_positions(
    parts: Sequence[PositionScores], plan: Plan, sequences: Sequence[Sequence[int]]
) -> tuple[Worst, ...]:
    """The positions of the largest KL, with the tokens before and after them."""
    found = [
        (float(kl), -i, -position)
        for i, part in enumerate(parts)
        for position, kl in zip(plan.rows, part.kl, strict=True)
    ]
    places = [(kl, -i, -position) for kl, i, position in sorted(found, reverse=True)[:WORST]]
    return tuple(Worst(i, at, kl, tuple(sequences[i][max(at - CONTEXT, 0) : at + 2])) for kl, i, at in places)


def by_label(values: Sequence[np.ndarray], labels: Sequence[str]) -> dict[str, Interval]:
    """`mean_by_sequence` of each label's sequences, in the order in which labels come first."""
    names = dict.fromkeys(labels)
    return {
        name: mean_by_sequence([each for each, label in zip(values, labels, strict=True) if label == name])
        for name in names
    }


def by_span(values: Sequence[np.ndarray], positions: range) -> tuple[Span, ...]:
    """`mean_by_sequence` of at most `MOST_SPANS` equal runs of the scored positions; the last one may be shorter."""
    width = -(-len(positions) // MOST_SPANS)
    starts = range(0, len(positions), width)
    return tuple(
        Span(
            positions[at],
            positions[min(at + width, len(positions)) - 1],
            mean_by_sequence([each[at : at + width] for each in values]),
        )
        for at in starts
    )
