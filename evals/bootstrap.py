"""Intervals by resampling sequences, or from the spread of a few. Positions of one sequence are not independent, so the
sequence is the unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from engine import errors

DRAWS = 4000
LEVEL = 0.95
SEED = 20261129
# Of fewer sequences n the bootstrap cannot cover: its widest interval, from the smallest to the largest of them, holds
# the mean in 1 - 2^(1 - n) of cases.
FEWEST = 6


@dataclass(frozen=True)
class Interval:
    """An estimate with its two-sided 95 % interval; `low` and `high` are None when no interval can be given."""

    value: float
    low: float | None
    high: float | None

    def map(self, function: Callable[[float], float]) -> Interval:
        """The same interval on another, increasing scale."""
        ends = [None if end is None else float(function(end)) for end in (self.low, self.high)]
        return Interval(float(function(self.value)), ends[0], ends[1])


def tail_share(n: int) -> float:
    """The share to cut from each end of the bootstrap distribution of n units.

    The plain percentile interval is too narrow for small n: by sqrt((n - 1) / n) in scale and by normal instead of t
    quantiles. The widened share of Hesterberg, "What Teachers Should Know about the Bootstrap" (2015), section 3.
    """
    quantile = stats.t.ppf((1 - LEVEL) / 2, n - 1)
    return float(stats.norm.cdf(np.sqrt(n / (n - 1)) * quantile))


def interval_by_sequence(sums: np.ndarray, counts: np.ndarray, *, seed: int = SEED) -> Interval:
    """Mean over positions with an interval, from each sequence's sum [S] and its number of positions [S].

    Fewer than `FEWEST` sequences have a t interval, fewer than 2 none. Deterministic in `seed` (PCG64). Raises
    `errors.InvalidValue` for no sequences or an empty one.
    """
    n = len(sums)
    if n == 0 or sums.shape != counts.shape or counts.min() < 1:
        raise errors.InvalidValue("sequences", n, "at least one sequence, each with at least one position")
    value = float(sums.sum() / counts.sum())
    if n < 2:
        return Interval(value, None, None)
    if n < FEWEST:
        off = (sums - value * counts) / counts.mean()  # of a ratio, to first order
        half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.sqrt((off**2).sum() / (n * (n - 1))))
        return Interval(value, value - half, value + half)
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = rng.integers(0, n, size=(DRAWS, n))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    share = tail_share(n)
    low, high = np.quantile(means, [share, 1 - share])
    # Resampled sums of equal values round differently; the estimate itself always lies within.
    return Interval(value, min(float(low), value), max(float(high), value))


def mean_by_sequence(values: Sequence[np.ndarray]) -> Interval:
    """The mean over all positions, one array a sequence, with its interval. Raises as `interval_by_sequence`."""
    sums = np.asarray([each.sum() for each in values], dtype=np.float64)
    return interval_by_sequence(sums, np.asarray([len(each) for each in values]))
