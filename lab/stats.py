"""The statistics of a paired timing experiment. Pure: no I/O, no MLX, no randomness.

A quad is four samples in the order ABBA or BAAB, chosen by a coin. Its value is y = mean ln t_base - mean ln
t_candidate, so y > 0 is a win of the candidate. The unit of every interval and test is a launch, the mean of the quads
that one pair of processes gave: samples of one process share its luck (memory layout, placement), so they are not
independent.

Too few units give an infinite interval and p = 1. So does zero variance: equal numbers from a clock are a fault, never
a certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats as scipy_stats

from engine import errors

Better = Literal["higher", "lower"]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Spend:
    """A planned look: at `quads` quads the one-sided test may use `alpha`."""

    quads: int
    alpha: float


@dataclass(frozen=True)
class Look:
    """What the data say at one look. Effects are relative (`estimate` .05 = 5 % better); `sd`, `mde` in log units.

    `low`, `high`: t interval at level 1 - 2 alpha. `bound_low`, `bound_high`: the two one-sided 95 % bounds.
    `launch_p`: F test of launches against the quads within them; None where it cannot be made.
    `win`: Wilcoxon and t both pass at alpha and the estimate reaches delta. `agree`: both tests say the same.
    """

    quads: int
    launches: int
    alpha: float
    delta: float
    estimate: float
    hodges_lehmann: float
    low: float
    high: float
    bound_low: float
    bound_high: float
    p_wilcoxon: float
    p_t: float
    sd: float
    lag1: float | None
    mde: float
    launch_p: float | None
    significant: bool
    agree: bool
    win: bool


def quad_value(base: Sequence[float], candidate: Sequence[float], better: Better) -> float:
    """y of one quad from each arm's two raw values (seconds, or tokens per second with better="higher").

    Raises `InvalidValue` unless both sides hold the same number of finite values above 0.
    """
    for name, values in (("base", base), ("candidate", candidate)):
        if not values or not all(math.isfinite(v) and v > 0 for v in values):
            raise errors.InvalidValue(f"{name} samples of a quad", list(values), "finite numbers above 0")
    if len(base) != len(candidate):
        raise errors.InvalidValue("samples of a quad", (len(base), len(candidate)), "as many of each arm")
    y = math.fsum(map(math.log, base)) / len(base) - math.fsum(map(math.log, candidate)) / len(candidate)
    return y if better == "lower" else -y


def six_digits(value: float) -> float:
    """`value` to 6 significant digits: what is compared is the same on every machine, whatever its last bits are."""
    return float(f"{value:.5e}") if math.isfinite(value) else value


def launch_means(launches: Sequence[Sequence[float]]) -> list[float]:
    """The mean quad value of each launch, in order; a launch without a quad raises `InvalidValue`."""
    if any(not quads for quads in launches):
        raise errors.InvalidValue("quads of a launch", 0, "at least one")
    return [math.fsum(quads) / len(quads) for quads in launches]


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; (nan, nan) for nothing, (value, nan) for one, (value, 0) for equals."""
    n = len(values)
    if not n:
        return math.nan, math.nan
    mean = math.fsum(values) / n
    if n == 1:
        return mean, math.nan
    if min(values) == max(values):
        return values[0], 0.0  # not what rounding of the mean would leave
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))


def t_bounds(values: Sequence[float], tail: float) -> Bounds:
    """Student bounds of the mean with `tail` probability beyond each; infinite for n < 2 or zero variance."""
    mean, sd = mean_sd(values)
    if not sd > 0:
        return -math.inf, math.inf
    half = float(scipy_stats.t.ppf(1 - tail, len(values) - 1)) * sd / math.sqrt(len(values))
    return mean - half, mean + half


def quantile_bounds(values: Sequence[float], quantile: float, tail: float) -> tuple[float | None, float | None]:
    """Bounds of a quantile with at most `tail` probability beyond each, from the order of independent values alone;
    None where there are too few for one. The upper one of p95 takes 59 values at tail .05, of p99 299."""
    ordered, n = sorted(values), len(values)
    if not n:
        return None, None
    # K of n values lie below the quantile, binomial: the bounds are the values that K passes only with `tail`.
    low = int(scipy_stats.binom.ppf(tail, n, quantile))
    high = int(scipy_stats.binom.isf(tail, n, quantile)) + 1
    return (ordered[low - 1] if low else None), (ordered[high - 1] if high <= n else None)


def t_test_greater(values: Sequence[float]) -> float:
    """One-sided p of mean > 0; 1.0 for n < 2 or zero variance."""
    mean, sd = mean_sd(values)
    if not sd > 0:
        return 1.0
    return float(scipy_stats.t.sf(mean * math.sqrt(len(values)) / sd, len(values) - 1))


def doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each size: whole numbers, also where sizes are tied."""
    ordered = sorted(sizes)
    first = {size: i for i, size in reversed(list(enumerate(ordered)))}
    last = {size: i for i, size in enumerate(ordered)}
    return [first[size] + last[size] + 2 for size in sizes]


def sign_flip_counts(ranks: Sequence[int]) -> list[int]:
    """counts[s]: how many of the 2**n choices of signs give the positive ranks the sum s. Exact integers."""
    counts = [1] + [0] * sum(ranks)
    reach = 0
    for rank in ranks:
        reach += rank
        for s in range(reach, rank - 1, -1):
            counts[s] += counts[s - rank]
    return counts


def wilcoxon_greater(values: Sequence[float]) -> float:
    """Exact one-sided p of the signed-rank test (centre > 0), by enumeration, ties included.

    Zeros have no sign and are left out, which keeps the test exact given where they are. Nothing left: 1.0.
    """
    kept = [v for v in values if v != 0]
    ranks = doubled_ranks([abs(v) for v in kept])
    observed = sum(rank for rank, v in zip(ranks, kept, strict=True) if v > 0)
    return sum(sign_flip_counts(ranks)[observed:]) / 2 ** len(kept)


def wilcoxon_two_sided(values: Sequence[float]) -> float:
    """Exact two-sided p: twice the smaller one-sided p, at most 1. The test of an A/A."""
    return min(1.0, 2 * min(wilcoxon_greater(values), wilcoxon_greater([-v for v in values])))


def hodges_lehmann(values: Sequence[float]) -> float:
    """Median of all pairwise means, a value with itself included; nan for nothing."""
    if not len(values):
        return math.nan
    x = np.asarray(values, dtype=np.float64)
    rows, columns = np.triu_indices(len(x))
    return float(np.median((x[rows] + x[columns]) / 2))


def mde(sd: float, n: int) -> float:
    """Log effect that n units of spread `sd` find with power .9: (t.975 + t.90) sd / sqrt(n); inf for n < 2."""
    if n < 2 or not sd > 0:
        return math.inf
    return float(scipy_stats.t.ppf(0.975, n - 1) + scipy_stats.t.ppf(0.90, n - 1)) * sd / math.sqrt(n)


def lag1(values: Sequence[float]) -> float | None:
    """Autocorrelation of neighbours; None for n < 3 or zero variance."""
    mean, sd = mean_sd(values)
    if len(values) < 3 or not sd > 0:
        return None
    shifted = [v - mean for v in values]
    pairs = zip(shifted[1:], shifted[:-1], strict=True)
    return math.fsum(a * b for a, b in pairs) / math.fsum(v * v for v in shifted)


def launch_variance_p(launches: Sequence[Sequence[float]]) -> float | None:
    """p of the one-way F test: do launches differ by more than their quads explain? None where it cannot be made."""
    n = sum(len(quads) for quads in launches)
    groups = len(launches)
    if groups < 2 or n <= groups:
        return None
    centre = math.fsum(y for quads in launches for y in quads) / n
    means = launch_means(launches)
    within = math.fsum((y - m) ** 2 for quads, m in zip(launches, means, strict=True) for y in quads) / (n - groups)
    between = math.fsum(len(quads) * (m - centre) ** 2 for quads, m in zip(launches, means, strict=True)) / (groups - 1)
    if within == 0:
        return None
    return float(scipy_stats.f.sf(between / within, groups - 1, n - groups))


def relative(y: float) -> float:
    """exp(y) - 1, and infinity where that overflows."""
    return math.inf if y > 700 else math.expm1(y)


def take_look(launches: Sequence[Sequence[float]], alpha: float, delta: float) -> Look:
    """Judge quad values, grouped by launch, at one planned look. `delta`: the relative gain that matters.

    Every number is rounded to 6 significant digits before it is compared: a replay gives the same on any machine.
    """
    means = [six_digits(mean) for mean in launch_means(launches)]
    mean, sd = mean_sd(means)
    low, high = t_bounds(means, alpha)
    bound_low, bound_high = t_bounds(means, 0.05)
    p_wilcoxon, p_t = six_digits(wilcoxon_greater(means)), six_digits(t_test_greater(means))
    passes = (p_wilcoxon <= alpha, p_t <= alpha)
    estimate, lag, launch_p = six_digits(relative(mean)), lag1(means), launch_variance_p(launches)
    return Look(
        quads=sum(len(quads) for quads in launches),
        launches=len(means),
        alpha=alpha,
        delta=delta,
        estimate=estimate,
        hodges_lehmann=six_digits(relative(hodges_lehmann(means))),
        low=six_digits(relative(low)),
        high=six_digits(relative(high)),
        bound_low=six_digits(relative(bound_low)),
        bound_high=six_digits(relative(bound_high)),
        p_wilcoxon=p_wilcoxon,
        p_t=p_t,
        sd=six_digits(sd),
        lag1=None if lag is None else six_digits(lag),
        mde=six_digits(mde(sd, len(means))),
        launch_p=None if launch_p is None else six_digits(launch_p),
        significant=all(passes),
        agree=passes[0] == passes[1],
        win=all(passes) and estimate >= delta,
    )


def pooled(sessions: Sequence[Sequence[Sequence[float]]]) -> float:
    """The estimate over the launches of several sessions together, each launch with the same weight; nan for none."""
    means = [six_digits(mean) for launches in sessions for mean in launch_means(launches)]
    return six_digits(relative(mean_sd(means)[0]))


def futile(look: Look) -> bool:
    """Stop at the first look: even the upper end of the interval is under the gain that matters."""
    return look.high < look.delta


def guardrail(look: Look, margin: float) -> Literal["worse", "holds", "unknown"]:
    """worse: the one-sided 95 % bound lies wholly beyond -margin; holds: wholly inside; else unknown."""
    if look.bound_high < -margin:
        return "worse"
    return "holds" if look.bound_low > -margin else "unknown"


@dataclass(frozen=True)
class Counted:
    """A counted quantity: the largest of each arm's runs, no test. `estimate`: relative gain of the candidate.

    `spread`: the larger of the arms' (max - min) / max. `enough`: at least the asked runs in each arm.
    """

    base: float
    candidate: float
    runs: int
    estimate: float
    spread: float
    enough: bool
    steady: bool


def count(
    base: Sequence[float], candidate: Sequence[float], better: Better, *, runs: int, spread_limit: float
) -> Counted:
    """Compare the maxima of `runs` or more repeats an arm. Raises `InvalidValue` for none, or values not above 0."""
    for name, values in (("base", base), ("candidate", candidate)):
        if not values or not all(math.isfinite(v) and v > 0 for v in values):
            raise errors.InvalidValue(f"{name} counts", list(values), "finite numbers above 0")
    top, other = max(base), max(candidate)
    spread = max((max(values) - min(values)) / max(values) for values in (base, candidate))
    return Counted(
        base=top,
        candidate=other,
        runs=min(len(base), len(candidate)),
        estimate=six_digits((top / other if better == "lower" else other / top) - 1),
        spread=six_digits(spread),
        enough=min(len(base), len(candidate)) >= runs,
        steady=spread <= spread_limit,
    )
