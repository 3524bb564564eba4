"""Intervals by sequence: coverage by simulation, against scipy, and the cases without one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from engine import errors
from evals.bootstrap import DRAWS, FEWEST, Interval, interval_by_sequence, tail_share


def coverage(draw: object, truth: float, n: int, runs: int = 400, positions: int = 8) -> float:
    """How often the interval holds the truth. Positions of one sequence share most of their value."""
    hits = 0
    for run in range(runs):
        rng = np.random.default_rng([7, n, run])
        level = draw(rng, n)  # type: ignore[operator]
        values = level[:, None] + 0.1 * rng.normal(size=(n, positions))
        found = interval_by_sequence(values.sum(axis=1), np.full(n, positions), seed=run)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    return hits / runs


# 400 runs: the standard error at .95 is 1.1 points.
@pytest.mark.parametrize(("n", "low"), [(2, 0.925), (4, 0.925), (6, 0.92), (8, 0.92), (16, 0.925), (64, 0.925)])
def test_the_interval_covers_a_normal_mean(n: int, low: float) -> None:
    assert low <= coverage(lambda rng, k: rng.normal(2.0, 1.0, k), 2.0, n) <= 0.985


def test_the_interval_of_a_skewed_mean_covers_nearly_as_often() -> None:
    # KL of sequences is skewed; exponential levels have skewness 2.
    assert 0.88 <= coverage(lambda rng, k: rng.exponential(1.0, k), 1.0, 16) <= 0.985


def test_positions_taken_as_independent_would_not_cover() -> None:
    """Why the sequence is the unit: the same simulation with each position as a unit of its own."""
    hits = 0
    for run in range(200):
        rng = np.random.default_rng([8, run])
        values = (rng.normal(2.0, 1.0, 16)[:, None] + 0.1 * rng.normal(size=(16, 8))).ravel()
        found = interval_by_sequence(values, np.ones(128, dtype=int), seed=run)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 2.0 <= found.high
    assert hits / 200 < 0.7


def test_without_the_widening_it_is_scipys_percentile_interval() -> None:
    values = np.random.default_rng(3).exponential(1.0, 40)
    ours = interval_by_sequence(values, np.ones(40, dtype=int))
    level = 1 - 2 * tail_share(40)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=DRAWS, method="percentile", confidence_level=level, rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, rel=0.03)
    assert ours.high == pytest.approx(theirs.high, rel=0.03)
    assert ours.value == values.mean()
    assert tail_share(10**6) == pytest.approx(0.025, rel=1e-4)
    assert 0.025 > tail_share(40) > tail_share(8)


def test_a_few_sequences_have_the_t_interval_of_their_means() -> None:
    values = np.random.default_rng(3).normal(2, 1, FEWEST - 1)
    ours = interval_by_sequence(4 * values, np.full(FEWEST - 1, 4))
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)
    uneven = interval_by_sequence(np.array([2.0, 9.0, 30.0]), np.array([1, 9, 20]))
    assert uneven.low is not None
    assert uneven.value - uneven.low == pytest.approx(
        stats.t.ppf(0.975, 2) * np.sqrt(sum((s - 41 / 30 * c) ** 2 for s, c in ((2, 1), (9, 9), (30, 20))) / 6) / 10
    )


def test_sequences_of_different_length_count_by_their_positions() -> None:
    found = interval_by_sequence(np.array([2.0, 9.0]), np.array([1, 9]))
    assert found.value == 1.1


def test_it_is_deterministic_in_its_seed() -> None:
    values, counts = np.random.default_rng(3).normal(size=16), np.full(16, 32)
    assert interval_by_sequence(values, counts) == interval_by_sequence(values, counts)
    assert interval_by_sequence(values, counts) != interval_by_sequence(values, counts, seed=1)


def test_one_sequence_has_no_interval_and_none_is_refused() -> None:
    assert interval_by_sequence(np.array([3.0]), np.array([2])) == Interval(1.5, None, None)
    assert Interval(1.5, None, None).map(np.exp) == Interval(float(np.exp(1.5)), None, None)
    for sums, counts in (([], []), ([1.0], [0]), ([1.0, 2.0], [1])):
        with pytest.raises(errors.InvalidValue, match="sequences"):
            interval_by_sequence(np.array(sums), np.array(counts))


def test_equal_sequences_have_a_point_as_their_interval() -> None:
    found = interval_by_sequence(np.full(12, 0.1), np.full(12, 3))
    assert found.low == pytest.approx(found.value, rel=1e-15)
    assert found.high == pytest.approx(found.value, rel=1e-15)
