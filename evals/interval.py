"""Intervals and tests of scores: one run's, and two runs' paired by item. Pure: numbers in, numbers out.

Letters: n items, b wins and c losses of the candidate among them, G clusters.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from scipy import optimize, stats

ALPHA = 0.05  # of every one-sided bound; an interval has half of it on each side
POWER = 0.90


def wilson(successes: float, n: int) -> tuple[float, float] | None:
    """The 95 % score interval of a share (Wilson 1927); None for fewer than two items."""
    if n < 2:
        return None
    z = float(stats.norm.ppf(1 - ALPHA / 2))
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def standard_error(low: float, high: float) -> float:
    """The standard error that a 95 % interval stands for. Of a share by `wilson` it is above 0 also where all items
    agree."""
    return (high - low) / (2 * float(stats.norm.ppf(1 - ALPHA / 2)))


def mcnemar(b: int, c: int) -> float:
    """Two-sided exact p of `b` wins against `c` losses: each flip is a fair coin if nothing changed."""
    flips = b + c
    tail = sum(math.comb(flips, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / 2**flips)


def tango(b: int, c: int, n: int, side: int = 1) -> float:
    """The one-sided 95 % bound of the drop (c - b) / n by the score test of paired shares (Tango 1998): the upper one,
    or with side -1 the lower one."""
    z = float(stats.norm.ppf(1 - ALPHA))

    def excess(drop: float) -> float:
        return side * _score(b, c, n, drop) + z

    # At the estimate the score is 0; at the end of the range it is below -z, or the range is the bound.
    estimate, end = (c - b) / n, float(side) * (1 - 1e-12)
    if excess(end) > 0 or estimate * side >= 1:
        return float(side)
    low, high = sorted((estimate, end))
    return float(optimize.brentq(excess, low, high, xtol=1e-12))


def _score(b: int, c: int, n: int, drop: float) -> float:
    """The standardised difference of the observed drop from `drop`, variances as fitted under it."""
    linear = -b - c + (2 * n - c + b) * drop
    wins = (math.sqrt(max(linear * linear + 8 * n * b * drop * (1 - drop), 0.0)) - linear) / (4 * n)
    variance = n * (2 * wins + drop * (1 - drop))
    gap = c - b - n * drop
    if variance <= 0:
        return 0.0 if gap == 0 else math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


def clustered(values: Sequence[float], clusters: Sequence[str]) -> tuple[float, float] | None:
    """The standard error of the mean of `values` whose items cluster, and the t quantile of a one-sided 95 % bound.

    "" is a cluster of its own item. None for fewer than two clusters.
    """
    mean = math.fsum(values) / len(values)
    sums: dict[str, float] = defaultdict(float)
    for i, (value, cluster) in enumerate(zip(values, clusters, strict=True)):
        sums[cluster or f"\0{i}"] += value - mean
    groups = len(sums)
    if groups < 2:
        return None
    squares = math.fsum(each * each for each in sums.values())
    error = math.sqrt(groups / (groups - 1) * squares) / len(values)
    return error, float(stats.t.ppf(1 - ALPHA, groups - 1))


def detectable(error: float) -> float:
    """The smallest drop that a one-sided test at 5 % finds with 90 % power, by the standard error of the drop."""
    return float(stats.norm.ppf(1 - ALPHA) + stats.norm.ppf(POWER)) * error
