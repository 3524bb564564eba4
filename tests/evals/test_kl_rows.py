"""Rows are worked on one by one: neither their neighbours nor the size of a block shows in a divergence."""

from __future__ import annotations

import numpy as np
import pytest

from evals import kl
from evals.kl import PositionScores, kl_divergence, log_softmax, score_positions, token_nll
from evals.report import floor_report

RNG = np.random.default_rng(5)
REFERENCE = (2 * RNG.normal(size=(41, 50))).astype(np.float32)
CANDIDATE = (REFERENCE + 0.4 * RNG.normal(size=REFERENCE.shape)).astype(np.float32)
TARGETS = RNG.integers(0, 50, 41)


def test_rows_at_very_different_levels_do_not_drown_each_other() -> None:
    levels = np.where(np.arange(41) % 2, -30000.0, 30000.0).astype(np.float32)[:, None]
    reference, candidate = np.round(REFERENCE) + levels, np.round(2 * CANDIDATE) + levels
    alone = [kl_divergence(reference[i : i + 1], candidate[i : i + 1])[0] for i in range(41)]
    assert kl_divergence(reference, candidate).tolist() == alone
    assert (
        kl_divergence(reference, candidate).tolist() == kl_divergence(reference - levels, candidate - levels).tolist()
    )
    assert np.exp(log_softmax(reference)).sum(axis=1) == pytest.approx(np.ones(41), rel=1e-14)


@pytest.mark.parametrize("rows", [1, 7, 41, 64])
def test_the_size_of_a_block_changes_no_bit(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = score_positions(REFERENCE, CANDIDATE, TARGETS), token_nll(CANDIDATE, TARGETS)
    monkeypatch.setattr(kl, "BLOCK_ROWS", rows)
    again = score_positions(REFERENCE, CANDIDATE, TARGETS), token_nll(CANDIDATE, TARGETS)
    for name, values in vars(whole[0]).items():
        np.testing.assert_array_equal(vars(again[0])[name], values, err_msg=name)
    np.testing.assert_array_equal(again[1], whole[1])


def test_a_divergence_that_is_no_number_stops_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check of the logits sees it: they are finite, and the softmax is what breaks."""
    monkeypatch.setattr(kl, "log_softmax", lambda logits: np.where(logits > 0, logits, np.nan).astype(np.float64))
    with pytest.raises(kl.NegativeKL, match="a divergence is >= 0"):
        score_positions(REFERENCE, CANDIDATE, TARGETS)


def test_the_floors_tail_is_the_observed_thousandth() -> None:
    one = score_positions(REFERENCE, CANDIDATE, TARGETS)
    values = np.arange(2000.0)
    many = PositionScores(*(values for _ in vars(one)))
    assert floor_report([many]).kl_p999 == 1997.0
