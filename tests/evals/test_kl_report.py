"""The numbers of a report, each recomputed by hand from the scores of positions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine import errors
from evals.kl import PositionScores, score_positions
from evals.report import floor_report, kl_report, quantile

RNG = np.random.default_rng(11)


def part(n: int, noise: float = 0.5) -> PositionScores:
    reference = (2 * RNG.normal(size=(n, 60))).astype(np.float32)
    candidate = (reference + noise * RNG.normal(size=reference.shape)).astype(np.float32)
    return score_positions(reference, candidate, RNG.integers(0, 60, n))


PARTS = [part(40), part(30, 0.1), part(50, 1.0)]
JOINED = PositionScores.join(PARTS)


def test_report_of_three_sequences_is_what_a_hand_count_gives() -> None:
    found = kl_report(PARTS, total=120)
    assert (found.sequences, found.counted, found.total) == (3, 120, 120)
    assert found.kl.value == pytest.approx(JOINED.kl.mean(), rel=1e-14)
    assert found.reverse_kl.value == pytest.approx(JOINED.reverse_kl.mean(), rel=1e-14)
    assert found.kl_by_sequence == tuple(p.kl.mean() for p in PARTS)
    ordered = sorted(JOINED.kl)
    assert found.kl_median == ordered[59]
    assert found.kl_p95 == ordered[113]
    assert found.kl_p99 == ordered[118]
    assert found.kl_p999 == found.kl_max == ordered[119]
    changes = [(gap, same) for gap, same in zip(JOINED.gap, JOINED.same_top1, strict=True) if not same]
    assert found.top1.value == pytest.approx(1 - len(changes) / 120, rel=1e-14)
    assert found.top1_changes == len(changes) > found.flips == sum(gap > 0.1 for gap, _ in changes) > 0
    assert found.flip_gap_max == max(gap for gap, _ in changes)
    assert found.top5_overlap == JOINED.overlap5.mean()
    assert found.top20_overlap == JOINED.overlap20.mean()
    deltas = [math.exp(-c) - math.exp(-r) for c, r in zip(JOINED.candidate_nll, JOINED.reference_nll, strict=True)]
    assert found.delta_p_mean == pytest.approx(math.fsum(deltas) / 120, rel=1e-12)
    assert found.delta_p_rms == pytest.approx(math.sqrt(math.fsum(d * d for d in deltas) / 120), rel=1e-12)
    ours, theirs = found.candidate_perplexity, found.reference_perplexity
    assert ours.value == pytest.approx(math.exp(JOINED.candidate_nll.mean()), rel=1e-13)
    assert theirs.value == pytest.approx(math.exp(JOINED.reference_nll.mean()), rel=1e-13)
    assert found.ln_ppl_ratio.value == pytest.approx(math.log(ours.value / theirs.value), rel=1e-9)
    for interval in (found.kl, found.reverse_kl, found.top1, found.ln_ppl_ratio, ours, theirs):
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low < interval.value < interval.high


def test_an_arm_against_itself_reports_exact_zeros() -> None:
    logits = (2 * RNG.normal(size=(20, 60))).astype(np.float32)
    same = score_positions(logits, logits.copy(), RNG.integers(0, 60, 20))
    found = kl_report([same, same], total=40)
    for value in (found.kl.value, found.kl.high, found.kl_max, found.delta_p_rms, found.ln_ppl_ratio.value):
        assert value == 0.0
    assert (found.top1.value, found.top1.low, found.top5_overlap, found.top20_overlap) == (1.0, 1.0, 1.0, 1.0)
    assert (found.top1_changes, found.flips, found.flip_gap_max) == (0, 0, None)


def test_a_change_at_a_near_tie_is_no_flip() -> None:
    reference = np.zeros((2, 5), np.float32)
    reference[:, 0], reference[0, 1], reference[1, 1] = 1.0, 0.95, 0.85  # gaps .05 and .15
    candidate = reference.copy()
    candidate[:, 1] = 1.1
    found = kl_report([score_positions(reference, candidate, np.array([0, 0]))], total=2)
    assert (found.top1_changes, found.flips) == (2, 1)
    assert found.flip_gap_max == pytest.approx(0.15, abs=1e-6)


def test_one_sequence_has_no_interval() -> None:
    found = kl_report(PARTS[:1], total=40)
    assert found.kl.low is found.kl.high is found.candidate_perplexity.low is None


def test_the_floor_is_the_kl_of_the_repeated_sequences() -> None:
    floor = floor_report(PARTS[:2])
    kl = np.concatenate([PARTS[0].kl, PARTS[1].kl])
    assert (floor.kl_mean, floor.kl_max, floor.sequences, floor.positions) == (kl.mean(), kl.max(), 2, 70)
    assert kl_report(PARTS, total=120, floor=floor).floor == floor


def test_quantiles_are_observed_values() -> None:
    assert quantile(np.array([1.0, 2.0, 30.0, 4.0]), 0.5) == 2.0
    assert quantile(np.arange(1000.0), 0.999) == 998.0


def test_nothing_to_report_is_refused() -> None:
    empty = replace(PARTS[0], kl=PARTS[0].kl[:0])
    for parts in ([], [PARTS[0], empty]):
        with pytest.raises(errors.InvalidValue, match="counted position"):
            kl_report(parts, total=1)
