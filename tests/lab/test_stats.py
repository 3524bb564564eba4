"""The statistics of one session against slow definitions and scipy, and where they must refuse certainty."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import stats as scipy_stats

from engine import errors
from lab import stats

RNG = np.random.Generator(np.random.PCG64(11))


def brute_wilcoxon(values: list[float]) -> float:
    """All 2**n signs of the mid-ranks of what is not zero."""
    kept = [v for v in values if v]
    ranks = scipy_stats.rankdata(np.abs(kept)) if kept else np.zeros(0)
    observed = sum(r for r, v in zip(ranks, kept, strict=True) if v > 0)
    sums = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in itertools.product((0, 1), repeat=len(kept))
    ]
    return sum(s >= observed for s in sums) / len(sums)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 16])
def test_wilcoxon_equals_scipy_without_ties(n: int) -> None:
    for _ in range(20):
        x = RNG.normal(0.4, 1, n)
        expected = scipy_stats.wilcoxon(x, alternative="greater", method="exact").pvalue
        assert stats.wilcoxon_greater(x.tolist()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "values",
    [[1, 1, 1, -1], [0, 0, 2, -3, 3], [0.0, 0.0], [], [5, -5, 5, -5, 5], [1, 2, 2, 3, 3, 3, -1, -2, 0]],
)
def test_wilcoxon_equals_all_sign_flips_with_ties_and_zeros(values: list[float]) -> None:
    assert stats.wilcoxon_greater(values) == brute_wilcoxon(values)


def test_wilcoxon_smallest_p_is_exact() -> None:
    assert stats.wilcoxon_greater([float(i) for i in range(1, 9)]) == 1 / 256
    assert stats.wilcoxon_greater([float(i) for i in range(1, 17)]) == 2**-16
    assert stats.wilcoxon_two_sided([float(i) for i in range(1, 9)]) == 2 / 256
    assert stats.wilcoxon_two_sided([1.0, -1.0]) == 1.0


def test_sign_flip_counts_are_whole() -> None:
    counts = stats.sign_flip_counts(stats.doubled_ranks([3.0, 1.0, 1.0]))
    assert sum(counts) == 8
    assert counts[-1] == 1


@pytest.mark.parametrize("n", [2, 8, 16])
def test_t_equals_scipy(n: int) -> None:
    x = RNG.normal(0.3, 1, n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = scipy_stats.ttest_1samp(x, 0, alternative="greater")
    assert stats.t_test_greater(x.tolist()) == pytest.approx(expected.pvalue, rel=1e-9)
    low, _ = stats.t_bounds(x.tolist(), 0.05)
    assert low == pytest.approx(expected.confidence_interval(0.95).low, rel=1e-9)


def test_hodges_lehmann_is_the_median_of_pair_means() -> None:
    x = [3.0, -1.0, 10.0, 2.0]
    pairs = [(x[i] + x[j]) / 2 for i in range(4) for j in range(i, 4)]
    assert stats.hodges_lehmann(x) == float(np.median(pairs))


def test_launch_f_test_equals_scipy() -> None:
    launches = [list(RNG.normal(m, 1, 2)) for m in (0, 0, 3, 5, 1)]
    assert stats.launch_variance_p(launches) == pytest.approx(scipy_stats.f_oneway(*launches).pvalue, rel=1e-9)
    assert stats.launch_variance_p([[1.0, 2.0]]) is None
    assert stats.launch_variance_p([[1.0], [2.0]]) is None


def test_mde_is_the_stated_formula() -> None:
    expected = (scipy_stats.t.ppf(0.975, 15) + scipy_stats.t.ppf(0.9, 15)) * 0.1 / 4
    assert stats.mde(0.1, 16) == pytest.approx(expected)
    assert stats.mde(0.1, 1) == math.inf
    assert stats.mde(0.0, 16) == math.inf


def test_lag1() -> None:
    x = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
    assert stats.lag1(x) == pytest.approx(-5 / 6)
    assert stats.lag1([1.0, 2.0]) is None


def test_quad_value_sign_and_refusals() -> None:
    slow, fast = [2.0, 2.0], [1.0, 1.0]
    assert stats.quad_value(slow, fast, "lower") == pytest.approx(math.log(2))
    assert stats.quad_value(fast, slow, "higher") == pytest.approx(math.log(2))
    for bad in ([0.0, 1.0], [math.nan, 1.0], [], [1.0]):
        with pytest.raises(errors.InvalidValue):
            stats.quad_value(bad, fast, "lower")


@pytest.mark.parametrize("launches", [[], [[0.5, 0.5]], [[0.2, 0.2]] * 8])
def test_too_few_or_equal_launches_are_never_certain(launches: list[list[float]]) -> None:
    look = stats.take_look(launches, 0.005, 0.02)
    assert (look.low, look.high) == (-1.0, math.inf)
    assert look.p_t == 1.0
    assert not look.win
    assert not look.significant
    assert look.mde == math.inf
    assert not stats.futile(look)
    assert stats.guardrail(look, 0.02) == "unknown"


def test_a_win_needs_both_tests_and_delta() -> None:
    clear = [[0.3 + 0.01 * i] * 2 for i in range(8)]
    assert stats.take_look(clear, 0.005, 0.1).win
    small = stats.take_look(clear, 0.005, 0.5)
    assert small.significant
    assert not small.win
    # Six equal gains and two zeros: t says .001, the exact test cannot go below 1/64.
    split = stats.take_look([[1.0]] * 6 + [[0.0]] * 2, 0.005, 0.02)
    assert split.p_t <= 0.005 < split.p_wilcoxon
    assert not split.agree
    assert not split.win


def test_guardrail_borders() -> None:
    tight = [[-0.20 + 0.001 * i] for i in range(8)]
    assert stats.guardrail(stats.take_look(tight, 0.05, 0.1), 0.10) == "worse"
    assert stats.guardrail(stats.take_look(tight, 0.05, 0.1), 0.30) == "holds"
    wide = [[-0.20 + 0.1 * i] for i in range(-4, 5)]
    assert stats.guardrail(stats.take_look(wide, 0.05, 0.1), 0.18) == "unknown"


def test_futility_reads_the_upper_bound() -> None:
    flat = [[0.001 * (-1) ** i + 0.0001 * i] for i in range(8)]
    assert stats.futile(stats.take_look(flat, 0.005, 0.02))
    assert not stats.futile(stats.take_look([[0.05 * i] for i in range(8)], 0.005, 0.02))


def test_counted_compares_maxima() -> None:
    found = stats.count([100, 100, 100], [25, 24, 25], "lower", runs=3, spread_limit=0.01)
    assert found.estimate == 3.0
    assert found.enough
    assert not found.steady
    assert stats.count([10, 10], [10, 10], "lower", runs=3, spread_limit=0.01).enough is False
    with pytest.raises(errors.InvalidValue):
        stats.count([], [1], "lower", runs=3, spread_limit=0.01)
