"""Intervals and tests of scores, against independent forms and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from evals.interval import clustered, detectable, mcnemar, tango, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (57, 100), (1, 2)])
def test_wilson_is_scipys(k: int, n: int) -> None:
    want = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert wilson(k, n) == pytest.approx((want.low, want.high))


def test_fewer_than_two_have_no_interval() -> None:
    assert wilson(1, 1) is None
    assert wilson(0, 0) is None


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (3, 9), (9, 3), (5, 5), (0, 12)])
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int) -> None:
    want = stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(want)


def fitted_score(b: int, c: int, n: int, drop: float) -> float:
    """Tango's statistic with the nuisance share found by maximising the likelihood."""

    def minus_log(wins: float) -> float:
        losses, same = wins + drop, 1 - 2 * wins - drop
        return -(b * math.log(wins) + c * math.log(losses) + (n - b - c) * math.log(same))

    low, high = max(0.0, -drop) + 1e-12, (1 - drop) / 2 - 1e-12
    wins = optimize.minimize_scalar(minus_log, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
    return (c - b - n * drop) / math.sqrt(n * (2 * wins + drop * (1 - drop)))


@pytest.mark.parametrize(("b", "c", "n"), [(3, 9, 100), (9, 3, 100), (5, 5, 40), (1, 2, 57), (20, 31, 200)])
def test_tango_bounds_are_where_the_fitted_score_is_the_quantile(b: int, c: int, n: int) -> None:
    z = stats.norm.ppf(0.95)
    upper, lower = tango(b, c, n), tango(b, c, n, -1)
    assert lower < (c - b) / n < upper
    assert fitted_score(b, c, n, upper) == pytest.approx(-z, abs=1e-4)
    assert fitted_score(b, c, n, lower) == pytest.approx(z, abs=1e-4)
    assert tango(c, b, n, -1) == pytest.approx(-upper)


def test_no_flips_still_have_a_bound_and_all_losses_have_the_whole_range() -> None:
    z = stats.norm.ppf(0.95)
    assert tango(0, 0, 100) == pytest.approx(z * z / (100 + z * z), rel=1e-6)
    assert tango(0, 10, 10) == 1.0
    assert tango(10, 0, 10, -1) == -1.0


def test_tango_covers() -> None:
    """Of planted paired shares, the upper bound lies above the drop about 95 times in a hundred."""
    draws = np.random.default_rng(5).multinomial(80, [0.06, 0.10, 0.84], size=4000)
    counts: dict[tuple[int, int], int] = {}
    for b, c, _ in draws:
        counts[int(b), int(c)] = counts.get((int(b), int(c)), 0) + 1
    above = sum(times for (b, c), times in counts.items() if tango(b, c, 80) >= 0.04)
    assert 0.935 <= above / 4000 <= 0.965


def test_clusters_widen_the_error_and_single_items_do_not() -> None:
    values = [1.0, 1.0, 0.0, 0.0] * 10
    alone = clustered(values, [""] * 40)
    together = clustered(values, [f"{i // 2}" for i in range(40)])
    assert alone is not None
    assert together is not None
    assert alone[0] == pytest.approx(np.std(values, ddof=1) / math.sqrt(40))
    assert together[0] == pytest.approx(alone[0] * math.sqrt(2 * 20 / 19 * 39 / 40))
    assert together[1] == pytest.approx(stats.t.ppf(0.95, 19))
    assert clustered(values, ["a"] * 40) is None


def test_a_drop_of_the_detectable_size_is_found_nine_times_in_ten() -> None:
    error = 0.02
    drops = np.random.default_rng(2).normal(detectable(error), error, 20000)
    assert np.mean(drops - stats.norm.ppf(0.95) * error > 0) == pytest.approx(0.9, abs=0.01)
