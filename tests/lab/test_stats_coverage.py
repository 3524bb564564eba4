"""False wins, coverage and power by simulation. R sessions with fixed seeds; a mutant of each rule must fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lab_sessions import FAMILY, LOOKS, World, launch_means, p_t, p_wilcoxon, wins
from scipy import stats as scipy_stats

from lab import stats

R = 40_000
FAMILY_LIMIT = 0.025
WITHIN = 0.03  # of a power curve from the law or from another simulation
TWO_VALUED = "first slot, little noise"
WORLDS = {
    "clean": World(),
    "linear drift": World(drift=20),
    "slow wave": World(wave=5),
    "first slot": World(first=3),
    TWO_VALUED: World(first=3, noise=0.05),
    "bad quarter": World(bad=5),
    "one bad session of four": World(bad_session=5),
    "neighbour bursts": World(burst=5),
    "heavy tails": World(tails=2.5),
    "lag-1 .5": World(lag=0.5),
    "lag-1 .9": World(lag=0.9),
    "launch .5 sd": World(launch=0.5),
    "launch 1 sd": World(launch=1),
    "all at once": World(drift=5, wave=2, first=2, tails=3, lag=0.5, launch=1),
}


def standard_error(p: float, n: int = R) -> float:
    return math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("name", WORLDS)
def test_false_wins_and_coverage(name: str) -> None:
    """No true gain: false wins over both looks stay within the spent alpha, and the interval covers zero."""
    means = launch_means(WORLDS[name], R, seed=1)
    assert wins(means).mean() <= FAMILY + 3 * standard_error(FAMILY) <= FAMILY_LIMIT
    if WORLDS[name].bad_session:
        bad = wins(means[::4])
        assert bad.mean() <= FAMILY + 3 * standard_error(FAMILY, len(bad))
    for n, alpha in LOOKS:
        if name == TWO_VALUED:
            continue  # t breaks its level here (test_mutant_t_alone_is_caught), so no coverage is claimed for it
        p = p_t(means[:, :n])
        missed = ((p <= alpha) | (p >= 1 - alpha)).mean()
        assert missed <= 2 * alpha + 3 * standard_error(2 * alpha)
    assert (p_wilcoxon(means[:, :8]) <= 0.005).mean() <= 0.005 + 3 * standard_error(0.005)


def test_clean_coverage_is_not_too_wide() -> None:
    means = launch_means(World(), R, seed=2)
    for n, alpha in LOOKS:
        p = p_t(means[:, :n])
        missed = ((p <= alpha) | (p >= 1 - alpha)).mean()
        assert abs(missed - 2 * alpha) <= 3 * standard_error(2 * alpha)


def test_mutant_fixed_order_is_caught() -> None:
    assert wins(launch_means(World(first=3), R, seed=3, coin=False)).mean() > 10 * FAMILY


def test_mutant_no_relaunch_is_caught() -> None:
    assert wins(launch_means(World(launch=0.5), R, seed=4, relaunch=False)).mean() > 10 * FAMILY


def test_mutant_t_alone_is_caught() -> None:
    """A first-slot penalty makes quads two-valued: t alone breaks its level at 16 launches, both tests hold it."""
    sessions = 160_000
    means = launch_means(WORLDS[TWO_VALUED], sessions, seed=5)
    n, alpha = LOOKS[1]
    alone = p_t(means[:, :n]) <= alpha
    assert alone.mean() > alpha + 4 * standard_error(alpha, sessions)
    assert (alone & (p_wilcoxon(means[:, :n]) <= alpha)).mean() <= alpha


GAINS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.9, 1.2)


@pytest.mark.parametrize(("n", "alpha"), LOOKS)
def test_the_power_curve_of_t_follows_the_exact_law(n: int, alpha: float) -> None:
    sd = math.sqrt(0.5)  # of the mean of two quads of four samples of sd 1
    critical = scipy_stats.t.ppf(1 - alpha, n - 1)
    for seed, gain in enumerate(GAINS):
        won = (p_t(launch_means(World(), R, seed=60 + seed, gain=gain, n=n)) <= alpha).mean()
        law = scipy_stats.nct.sf(critical, n - 1, gain * math.sqrt(n) / sd)
        assert abs(won - law) <= max(3 * standard_error(law), 1e-4) <= WITHIN


@pytest.mark.parametrize(("n", "alpha"), LOOKS)
def test_the_power_curve_of_wilcoxon_follows_an_independent_simulation(n: int, alpha: float) -> None:
    """The other side draws launch means directly, and ranks and counts with scipy."""
    others = 3000
    for seed, gain in enumerate(GAINS[1:6:2]):
        ours = (p_wilcoxon(launch_means(World(), R, seed=70 + seed, gain=gain, n=n)) <= alpha).mean()
        rng = np.random.Generator(np.random.PCG64(80 + seed))
        x = rng.normal(gain, math.sqrt(0.5), (others, n))
        theirs = (scipy_stats.wilcoxon(x, alternative="greater", method="exact", axis=1).pvalue <= alpha).mean()
        assert abs(ours - theirs) <= max(3 * standard_error(theirs, others), 2 / others) <= WITHIN


def test_the_power_of_both_looks_together_follows_an_independent_simulation() -> None:
    """What a run does: both tests at both looks."""
    others = 3000
    ours = wins(launch_means(World(), R, seed=90, gain=0.5)).mean()
    x = np.random.Generator(np.random.PCG64(91)).normal(0.5, math.sqrt(0.5), (others, 16))
    won = np.zeros(others, dtype=bool)
    for n, alpha in LOOKS:
        w = scipy_stats.wilcoxon(x[:, :n], alternative="greater", method="exact", axis=1).pvalue
        t = scipy_stats.ttest_1samp(x[:, :n], 0, axis=1, alternative="greater").pvalue
        won |= (w <= alpha) & (t <= alpha)
    assert abs(ours - won.mean()) <= 3 * standard_error(won.mean(), others) <= WITHIN


def test_the_vectorised_tests_are_those_of_the_module() -> None:
    """The module rounds to 6 digits, the simulation does not."""
    means = launch_means(World(launch=0.5), 200, seed=9, gain=0.4)
    fast_w, fast_t = p_wilcoxon(means), p_t(means)
    for row, w, t in zip(means, fast_w, fast_t, strict=True):
        look = stats.take_look([[v] for v in row], 0.0175, 0.0)
        assert look.p_wilcoxon == pytest.approx(w, rel=1e-5)
        assert look.p_t == pytest.approx(t, rel=2e-5)
