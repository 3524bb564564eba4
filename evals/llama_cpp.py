"""The statistics that llama.cpp's `llama-perplexity --kl-divergence` prints, from scores of positions, so that a number
of ours can stand beside one of theirs. Source: tools/perplexity/perplexity.cpp and its README, read in November 2026.

Where the two differ:

| what | llama.cpp | this table | `evals.report` |
|---|---|---|---|
| log-probabilities of the base | 16 bits over the top 16 nats of a position | fp32 logits, float64 | the same |
| tokens with a base log-probability <= -16 | left out of a position's KL, which can be < 0 | in | in |
| positions | the second half of each context, BOS in front | those of the protocol | the same |
| percentiles | interpolated between neighbours | as there | an observed value |
| errors | of a mean of independent tokens | as there | intervals by sequence |
| error of ln PPL(Q)/PPL(base) | NaN where three sums round below 0 | from paired differences, the same | interval |
| errors of 10 positions or fewer | 0 | as of more; None for one | None for one sequence |

The 16 bits move a log-probability of the base by half a step, at most 1.3e-4 nats. All else is the same to rounding.

Letters: N positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evals.kl import PositionScores

KLD_PERCENTS = (0.1, 1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9)
DELTA_P_PERCENTS = (0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, None where one value or a scale of 0 gives none."""

    value: float
    error: float | None


@dataclass(frozen=True)
class LlamaCppTable:
    """KL and ln PPL in nats; probabilities and shares as such, not in percent. percentiles: percent -> value."""

    ppl: Estimate
    base_ppl: Estimate
    ln_ppl_ratio: Estimate
    correlation: float | None
    kld: Estimate
    kld_min: float
    kld_max: float
    kld_percentiles: Mapping[str, float]
    delta_p: Estimate
    delta_p_min: float
    delta_p_max: float
    delta_p_percentiles: Mapping[str, float]
    delta_p_rms: Estimate
    same_top: Estimate


def llama_cpp_table(scores: PositionScores) -> LlamaCppTable:
    """The table of all positions together."""
    ours, base = scores.candidate_nll, scores.reference_nll
    delta_p = np.exp(-ours) - np.exp(-base)
    square = _mean(delta_p**2)
    rms = math.sqrt(square.value)
    spread = float(np.std(ours) * np.std(base))
    return LlamaCppTable(
        ppl=_exp(_mean(ours)),
        base_ppl=_exp(_mean(base)),
        ln_ppl_ratio=_mean(ours - base),
        correlation=float(((ours - ours.mean()) * (base - base.mean())).mean() / spread) if spread else None,
        kld=_mean(scores.kl),
        kld_min=float(scores.kl.min()),
        kld_max=float(scores.kl.max()),
        kld_percentiles=_percentiles(scores.kl, KLD_PERCENTS),
        delta_p=_mean(delta_p),
        delta_p_min=float(delta_p.min()),
        delta_p_max=float(delta_p.max()),
        delta_p_percentiles=_percentiles(delta_p, DELTA_P_PERCENTS),
        delta_p_rms=Estimate(rms, None if square.error is None or rms == 0 else square.error / (2 * rms)),
        same_top=_mean(scores.same_top1.astype(np.float64)),
    )


def _mean(values: np.ndarray) -> Estimate:
    """With the error of the mean of so many independent values [N]."""
    count = len(values)
    return Estimate(float(values.mean()), float(np.std(values)) / math.sqrt(count - 1) if count > 1 else None)


def _exp(log: Estimate) -> Estimate:
    """On the scale of its exponential, the error carried over to first order."""
    value = math.exp(log.value)
    return Estimate(value, None if log.error is None else value * log.error)


def _percentiles(values: np.ndarray, percents: tuple[float, ...]) -> dict[str, float]:
    """Interpolated between the two values around the place percent / 100 * (N - 1)."""
    return {f"{percent:g}": float(np.percentile(values, percent, method="linear")) for percent in percents}
