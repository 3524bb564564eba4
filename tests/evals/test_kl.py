"""KL and what goes with it, against slow and independent formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from engine import errors
from evals.kl import BadLogits, NegativeKL, checked_divergence, kl_divergence, score_positions, token_nll

RNG = np.random.default_rng(5)
LOGITS = (3 * RNG.normal(size=(37, 201))).astype(np.float32)
OTHER = (LOGITS + 0.3 * RNG.normal(size=LOGITS.shape)).astype(np.float32)
TARGETS = RNG.integers(0, 201, 37)


def slow_probabilities(row: np.ndarray) -> list[float]:
    """A softmax in Python's own floats with exact sums."""
    top = max(float(x) for x in row)
    weights = [math.exp(float(x) - top) for x in row]
    total = math.fsum(weights)
    return [w / total for w in weights]


def slow_kl(p_row: np.ndarray, q_row: np.ndarray) -> float:
    p, q = slow_probabilities(p_row), slow_probabilities(q_row)
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_kl_is_the_sum_that_a_slow_formula_and_scipy_give() -> None:
    found = kl_divergence(LOGITS, OTHER)
    slow = [slow_kl(p, q) for p, q in zip(LOGITS, OTHER, strict=True)]
    # another order of float64 sums: only rounding may differ
    np.testing.assert_allclose(found, slow, rtol=1e-11)
    p, q = special.softmax(LOGITS.astype(float), axis=1), special.softmax(OTHER.astype(float), axis=1)
    # another order of float64 sums: only rounding may differ
    np.testing.assert_allclose(found, stats.entropy(p, q, axis=1), rtol=1e-10)


def test_kl_has_a_direction() -> None:
    forward, backward = kl_divergence(LOGITS, OTHER), kl_divergence(OTHER, LOGITS)
    # the two directions must differ by far more than rounding
    assert not np.allclose(forward, backward, rtol=1e-3)
    # another order of float64 sums: only rounding may differ
    np.testing.assert_allclose(backward[0], slow_kl(OTHER[0], LOGITS[0]), rtol=1e-11)


def test_kl_of_equal_logits_is_exactly_zero_and_of_a_constant_shift_nearly() -> None:
    assert kl_divergence(LOGITS, LOGITS.copy()).tolist() == [0.0] * 37
    exact = np.round(LOGITS)  # a shift by 2 loses no bit of these
    assert kl_divergence(exact, exact + 2).max() < 1e-28


def test_kl_is_never_negative_where_the_plain_fp32_formula_often_is() -> None:
    rng = np.random.default_rng(1)
    reference = (4 * rng.normal(size=(200, 5000))).astype(np.float32)
    candidate = (reference + np.float32(1e-5) * rng.normal(size=reference.shape)).astype(np.float32)
    log_p, log_q = special.log_softmax(reference, axis=1), special.log_softmax(candidate, axis=1)
    assert log_p.dtype == np.float32
    plain = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    found = kl_divergence(reference, candidate)
    assert (plain < 0).mean() > 0.2
    assert (found > 0).all()
    assert found.max() < 1e-9
    # Its leading term: half the variance of the differences under p.
    p = special.softmax(reference.astype(float), axis=1)
    d = candidate.astype(float) - reference
    variance = (p * d**2).sum(axis=1) - (p * d).sum(axis=1) ** 2
    # the right side is the second-order term of KL, so they agree to the size of the third
    np.testing.assert_allclose(found, variance / 2, rtol=1e-4)


def test_kl_of_distributions_that_share_nothing_is_finite_and_right() -> None:
    reference = np.zeros((1, 4), np.float32)
    reference[0, 0] = 2000
    candidate = np.zeros((1, 4), np.float32)
    candidate[0, 0] = -2000
    assert kl_divergence(reference, candidate)[0] == pytest.approx(2000 + math.log(3), rel=1e-15)
    assert kl_divergence(candidate, reference)[0] == pytest.approx(2000 - math.log(3), rel=1e-15)


def test_a_negative_divergence_is_a_bug_and_raises() -> None:
    assert checked_divergence(np.array([0.0, -1e-13, 2.0])).tolist() == [0.0, -1e-13, 2.0]
    for wrong in (-2e-12, np.nan):
        with pytest.raises(NegativeKL, match="at 1 of 2 positions"):
            checked_divergence(np.array([0.5, wrong]))


def test_nll_is_minus_the_log_softmax_at_the_target() -> None:
    expected = [-math.log(slow_probabilities(row)[t]) for row, t in zip(LOGITS, TARGETS, strict=True)]
    # another order of float64 sums: only rounding may differ
    np.testing.assert_allclose(token_nll(LOGITS, TARGETS), expected, rtol=1e-12)


def test_scores_of_positions_match_slow_counts() -> None:
    scores = score_positions(LOGITS, OTHER, TARGETS)
    assert len(scores) == 37
    np.testing.assert_array_equal(scores.kl, kl_divergence(LOGITS, OTHER))
    np.testing.assert_array_equal(scores.reverse_kl, kl_divergence(OTHER, LOGITS))
    np.testing.assert_array_equal(scores.reference_nll, token_nll(LOGITS, TARGETS))
    np.testing.assert_array_equal(scores.candidate_nll, token_nll(OTHER, TARGETS))
    for i, (p, q) in enumerate(zip(LOGITS, OTHER, strict=True)):
        order_p, order_q = np.argsort(-p), np.argsort(-q)
        assert scores.same_top1[i] == (order_p[0] == order_q[0])
        assert scores.overlap5[i] == len(set(order_p[:5]) & set(order_q[:5])) / 5
        assert scores.overlap20[i] == len(set(order_p[:20]) & set(order_q[:20])) / 20
        assert scores.gap[i] == pytest.approx(float(p[order_p[0]]) - float(p[order_p[1]]), abs=1e-12)
    assert 0 < scores.same_top1.sum() < 37
    assert len(set(scores.overlap5)) > 1


def test_overlap_of_a_vocabulary_below_twenty_counts_what_there_is() -> None:
    scores = score_positions(LOGITS[:, :7], OTHER[:, :7], TARGETS % 7)
    assert scores.overlap20.tolist() == [1.0] * 37


@pytest.mark.parametrize(
    ("reference", "candidate", "match"),
    [
        (LOGITS, OTHER[:5], "one"),
        (LOGITS[0], OTHER[0], "one"),
        (LOGITS[:0], OTHER[:0], "one"),
        (np.where(LOGITS[3, 3] == LOGITS, np.nan, LOGITS), OTHER, "reference's logits are not finite"),
        (LOGITS, np.where(OTHER[0, 0] == OTHER, -np.inf, OTHER), "candidate's logits are not finite"),
    ],
)
def test_logits_that_cannot_be_compared_are_refused(reference: np.ndarray, candidate: np.ndarray, match: str) -> None:
    with pytest.raises(BadLogits, match=match):
        kl_divergence(reference, candidate)


@pytest.mark.parametrize("targets", [TARGETS[:5], TARGETS - 500, TARGETS + 201])
def test_targets_outside_of_the_vocabulary_are_refused(targets: np.ndarray) -> None:
    with pytest.raises(errors.InvalidValue, match=r"37 token ids in 0\.\.200"):
        score_positions(LOGITS, OTHER, targets)
