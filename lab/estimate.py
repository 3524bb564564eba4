"""A number with its interval. Pure; the unit of an interval is the round or the sequence, never a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from engine import errors
from evals.bootstrap import FEWEST, interval_by_sequence


@dataclass(frozen=True)
class Estimate:
    """`low` and `high` bound the 95 % interval, None where `n` < 2 gives none. `how`: what made the interval."""

    value: float
    low: float | None
    high: float | None
    n: int
    how: str

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in another unit; `factor` > 0."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.value * factor, low, high, self.n, self.how)


def _checked(name: str, values: Sequence[float], *, positive: bool) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all() or (positive and (array <= 0).any()):
        raise errors.InvalidValue(name, list(values), "at least one finite number" + (" above 0" if positive else ""))
    return array


def timing(values: Sequence[float]) -> Estimate:
    """Geometric mean over rounds with a t interval on the logs.

    Equal values (n >= 2) give no interval either: zero variance never prints a certainty.
    """
    logs = np.log(_checked("timing values", values, positive=True))
    n, centre = len(logs), float(logs.mean())
    if n < 2 or logs.std(ddof=1) == 0:
        return Estimate(math.exp(centre), None, None, n, "none")
    half = float(scipy_stats.t.ppf(0.975, n - 1) * logs.std(ddof=1) / math.sqrt(n))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half), n, "t on logs over rounds")


def ratio(candidate: Sequence[float], base: Sequence[float]) -> Estimate:
    """candidate / base, paired by round: geometric mean with a t interval on the log ratios."""
    top = _checked("ratio candidate", candidate, positive=True)
    bottom = _checked("ratio base", base, positive=True)
    if len(top) != len(bottom):
        raise errors.InvalidValue("ratio pairs", (len(top), len(bottom)), "as many candidate as base values")
    return timing((top / bottom).tolist())


def counted(values: Sequence[float]) -> Estimate:
    """The largest of repeats of a counted quantity (memory, bytes); no test is made of it."""
    array = _checked("counted values", values, positive=False)
    spread = float((array.max() - array.min()) / array.max()) if array.max() > 0 else 0.0
    return Estimate(float(array.max()), None, None, len(array), f"counted, spread {100 * spread:.1f} %")


def sequence_mean(values: Sequence[float]) -> Estimate:
    """Mean over sequences of equal length, bootstrapped by sequence."""
    return _bootstrap(_checked("sequence means", values, positive=False), exponent=False)


def sequence_perplexity(nll_nats: Sequence[float]) -> Estimate:
    """exp of the mean negative log-likelihood over sequences of equal length, bootstrapped by sequence."""
    return _bootstrap(_checked("sequence nll", nll_nats, positive=False), exponent=True)


def _bootstrap(values: np.ndarray, *, exponent: bool) -> Estimate:
    found = interval_by_sequence(values, np.ones(len(values), dtype=np.int64))
    if exponent:
        found = found.map(math.exp)
    how = "none" if found.low is None else "bootstrap by sequence" if len(values) >= FEWEST else "t by sequence"
    return Estimate(found.value, found.low, found.high, len(values), how)
