"""llama.cpp's statistics, written here a second time from their definitions, with plain loops over Python's floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from evals.bootstrap import Interval
from evals.kl import PositionScores, score_positions
from evals.llama_cpp import DELTA_P_PERCENTS, KLD_PERCENTS, llama_cpp_table
from evals.report import kl_report

RNG = np.random.default_rng(29)
N, VOCAB = 240, 57
BASE = (2.5 * RNG.normal(size=(N, VOCAB))).astype(np.float32)
QUANTISED = (BASE + 0.4 * RNG.normal(size=BASE.shape)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, N)
LIMIT = 1e-6
STEP = 16 / 65535  # of a stored log-probability, at most


def log_probs(row: Sequence[float]) -> list[float]:
    top = max(row)
    total = math.fsum(math.exp(x - top) for x in row)
    return [x - top - math.log(total) for x in row]


def stored(row: Sequence[float]) -> list[float]:
    """What the base's file holds of a position: steps of a 65535th of its range, which is 16 nats at most."""
    top = max(row)
    low = max(min(row), top - 16)
    step = (top - low) / 65535
    shift = math.log(math.fsum(math.exp(x - top) for x in row)) + top
    return [low - shift + step * (round((x - low) / step) if x > low else 0) for x in row]


class Expected:
    """Sums over tokens, then every printed number from the sums."""

    def __init__(self, *, exact: bool) -> None:
        self.kld, self.delta_p, self.nll, self.base = [], [], [], []  # type: ignore[var-annotated]
        same = 0
        for p_row, q_row, goal in zip(BASE.tolist(), QUANTISED.tolist(), TARGETS.tolist(), strict=True):
            p, q = log_probs(p_row) if exact else stored(p_row), log_probs(q_row)
            terms = [math.exp(a) * (a - b) for a, b in zip(p, q, strict=True) if exact or a > -16]
            self.kld.append(math.fsum(terms))
            self.nll.append(-q[goal])
            self.base.append(-p[goal])
            self.delta_p.append(math.exp(q[goal]) - math.exp(p[goal]))
            same += p.index(max(p)) == q.index(max(q))
        self.same = same / N

    @staticmethod
    def mean(values: Sequence[float]) -> tuple[float, float]:
        mean, squares = sum(values) / N, sum(x * x for x in values) / N
        return mean, math.sqrt((squares - mean * mean) / (N - 1))

    def covariance(self) -> float:
        both = sum(a * b for a, b in zip(self.nll, self.base, strict=True)) / N
        return (both - sum(self.nll) / N * sum(self.base) / N) / (N - 1)

    @staticmethod
    def percentile(values: Sequence[float], percent: float) -> float:
        ordered, place = sorted(values), percent / 100 * (N - 1)
        if place >= N - 1:
            return ordered[-1]
        below, above = list(pairwise(ordered))[int(place)]
        return below + (place - int(place)) * (above - below)


EXACT = Expected(exact=True)
PARTS = [score_positions(BASE[i : i + 40], QUANTISED[i : i + 40], TARGETS[i : i + 40]) for i in range(0, N, 40)]
TABLE = llama_cpp_table(PositionScores.join(PARTS))


def test_perplexities_their_ratio_and_their_correlation() -> None:
    (nll, nll_error), (base, base_error) = EXACT.mean(EXACT.nll), EXACT.mean(EXACT.base)
    assert TABLE.ppl.value == pytest.approx(math.exp(nll), abs=LIMIT)
    assert TABLE.ppl.error == pytest.approx(math.exp(nll) * nll_error, abs=LIMIT)
    assert TABLE.base_ppl.value == pytest.approx(math.exp(base), abs=LIMIT)
    assert TABLE.base_ppl.error == pytest.approx(math.exp(base) * base_error, abs=LIMIT)
    assert TABLE.ln_ppl_ratio.value == pytest.approx(nll - base, abs=LIMIT)
    ratio_error = math.sqrt(nll_error**2 + base_error**2 - 2 * EXACT.covariance())
    assert TABLE.ln_ppl_ratio.error == pytest.approx(ratio_error, abs=LIMIT)
    assert TABLE.correlation == pytest.approx(EXACT.covariance() / (nll_error * base_error), abs=LIMIT)


def test_divergences_and_changes_of_the_tokens_probability() -> None:
    assert (TABLE.kld.value, TABLE.kld.error) == pytest.approx(EXACT.mean(EXACT.kld), abs=LIMIT)
    assert (TABLE.kld_min, TABLE.kld_max) == pytest.approx((min(EXACT.kld), max(EXACT.kld)), abs=LIMIT)
    assert (TABLE.delta_p.value, TABLE.delta_p.error) == pytest.approx(EXACT.mean(EXACT.delta_p), abs=LIMIT)
    assert (TABLE.delta_p_min, TABLE.delta_p_max) == pytest.approx((min(EXACT.delta_p), max(EXACT.delta_p)), abs=LIMIT)
    square, square_error = EXACT.mean([x * x for x in EXACT.delta_p])
    rms = math.sqrt(square)
    assert (TABLE.delta_p_rms.value, TABLE.delta_p_rms.error) == pytest.approx(
        (rms, 0.5 / rms * square_error), abs=LIMIT
    )
    share = math.sqrt(EXACT.same * (1 - EXACT.same) / (N - 1))
    assert 0.5 < EXACT.same < 1
    assert (TABLE.same_top.value, TABLE.same_top.error) == pytest.approx((EXACT.same, share), abs=LIMIT)


@pytest.mark.parametrize(
    ("values", "found", "percents"),
    [
        (EXACT.kld, TABLE.kld_percentiles, KLD_PERCENTS),
        (EXACT.delta_p, TABLE.delta_p_percentiles, DELTA_P_PERCENTS),
    ],
)
def test_percentiles(values: list[float], found: dict[str, float], percents: tuple[float, ...]) -> None:
    assert found == {f"{p:g}": pytest.approx(EXACT.percentile(values, p), abs=LIMIT) for p in percents}
    assert found["50"] == pytest.approx(float(np.median(values)), abs=LIMIT)


def test_the_report_has_the_same_means_and_its_own_tails_and_intervals() -> None:
    report = kl_report(PARTS, total=N)
    for interval, estimate in (
        (report.kl, TABLE.kld),
        (report.ln_ppl_ratio, TABLE.ln_ppl_ratio),
        (report.top1, TABLE.same_top),
        (report.candidate_perplexity, TABLE.ppl),
        (report.reference_perplexity, TABLE.base_ppl),
    ):
        assert isinstance(interval, Interval)
        assert interval.value == pytest.approx(estimate.value, abs=LIMIT)
    assert (report.delta_p_mean, report.delta_p_rms) == pytest.approx(
        (TABLE.delta_p.value, TABLE.delta_p_rms.value), abs=LIMIT
    )
    assert report.kl_max == TABLE.kld_max
    ordered = sorted(EXACT.kld)
    for ours, percent in ((report.kl_p95, 95), (report.kl_p99, 99)):
        below = int(percent / 100 * (N - 1))
        assert ours == pytest.approx(ordered[below], abs=LIMIT) or ours == pytest.approx(ordered[below + 1], abs=LIMIT)
        assert ours != pytest.approx(TABLE.kld_percentiles[f"{percent}"], abs=LIMIT)


def test_what_sixteen_bits_of_the_base_change() -> None:
    """More than the limit, and no more than half a step of a log-probability would explain."""
    rough = Expected(exact=False)
    ratio = (rough.mean(rough.nll)[0] - rough.mean(rough.base)[0]) - TABLE.ln_ppl_ratio.value
    moved = np.abs(np.array(rough.base) - EXACT.base)
    assert LIMIT < moved.max() < 0.501 * STEP
    assert abs(ratio) < 0.501 * STEP
    assert LIMIT < np.abs(np.array(rough.kld) - EXACT.kld).max() < STEP


def test_equal_models_and_one_position_have_no_errors_that_are_no_numbers() -> None:
    same = llama_cpp_table(score_positions(BASE, BASE.copy(), TARGETS))
    assert (same.kld.value, same.kld.error, same.ln_ppl_ratio.error, same.delta_p_rms.value) == (0.0, 0.0, 0.0, 0.0)
    assert same.correlation == pytest.approx(1, abs=1e-12)
    assert same.delta_p_rms.error is None
    one = llama_cpp_table(score_positions(BASE[:1], QUANTISED[:1], TARGETS[:1]))
    assert (one.kld.error, one.ppl.error, one.correlation) == (None, None, None)
