"""From the scores of positions to the numbers of a fidelity table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import errors
from evals.bootstrap import Interval, mean_by_sequence
from evals.kl import PositionScores
from evals.llama_cpp import LlamaCppTable, llama_cpp_table

# A change of the most likely token counts as a flip when the reference led by more than this.
FLIP_GAP_NATS = 0.1


@dataclass(frozen=True)
class Floor:
    """The A/A floor: the reference against itself with its tokens cut into other forwards. KL in nats."""

    kl_mean: float
    kl_p999: float
    kl_max: float
    sequences: int
    positions: int


@dataclass(frozen=True)
class KLReport:
    """KL(ref || cand) in nats over all counted positions, and what goes with it.

    `counted` positions attended the scheme of their arm, of `total` that the protocol scores. top1_changes: positions
    whose most likely token changed; flips: those at a reference gap above `FLIP_GAP_NATS`; flip_gap_max: the largest
    gap at a change, None without one. delta_p: candidate minus reference probability of the text's own next token.
    kl_by_sequence: mean of each sequence. llama_cpp: the same positions by llama.cpp's definitions.
    """

    sequences: int
    counted: int
    total: int
    kl: Interval
    kl_median: float
    kl_p95: float
    kl_p99: float
    kl_p999: float
    kl_max: float
    reverse_kl: Interval
    top1: Interval
    top1_changes: int
    flips: int
    flip_gap_max: float | None
    top5_overlap: float
    top20_overlap: float
    delta_p_mean: float
    delta_p_rms: float
    ln_ppl_ratio: Interval
    reference_perplexity: Interval
    candidate_perplexity: Interval
    kl_by_sequence: tuple[float, ...]
    llama_cpp: LlamaCppTable
    floor: Floor | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def quantile(values: np.ndarray, share: float) -> float:
    """The smallest observed value with at least `share` of the values at or below it: no invented value in a tail."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def floor_report(parts: Sequence[PositionScores]) -> Floor:
    """The A/A floor from the scores of the reference against itself, one part a sequence."""
    kl = np.concatenate([part.kl for part in parts])
    return Floor(float(kl.mean()), quantile(kl, 0.999), float(kl.max()), len(parts), len(kl))


def kl_report(parts: Sequence[PositionScores], *, total: int, floor: Floor | None = None) -> KLReport:
    """Summarise the counted positions of each sequence. `total`: positions that the protocol scores.

    Raises `errors.InvalidValue` without a sequence or with one that has no position.
    """
    if not parts or any(len(part) == 0 for part in parts):
        raise errors.InvalidValue("sequences", len(parts), "at least one, each with at least one counted position")
    all_ = PositionScores.join(list(parts))
    changed = ~all_.same_top1
    delta_p = np.exp(-all_.candidate_nll) - np.exp(-all_.reference_nll)
    return KLReport(
        sequences=len(parts),
        counted=len(all_),
        total=total,
        kl=mean_by_sequence([part.kl for part in parts]),
        kl_median=quantile(all_.kl, 0.5),
        kl_p95=quantile(all_.kl, 0.95),
        kl_p99=quantile(all_.kl, 0.99),
        kl_p999=quantile(all_.kl, 0.999),
        kl_max=float(all_.kl.max()),
        reverse_kl=mean_by_sequence([part.reverse_kl for part in parts]),
        top1=mean_by_sequence([part.same_top1 for part in parts]),
        top1_changes=int(changed.sum()),
        flips=int((changed & (all_.gap > FLIP_GAP_NATS)).sum()),
        flip_gap_max=float(all_.gap[changed].max()) if changed.any() else None,
        top5_overlap=float(all_.overlap5.mean()),
        top20_overlap=float(all_.overlap20.mean()),
        delta_p_mean=float(delta_p.mean()),
        delta_p_rms=float(np.sqrt((delta_p**2).mean())),
        ln_ppl_ratio=mean_by_sequence([part.candidate_nll - part.reference_nll for part in parts]),
        reference_perplexity=mean_by_sequence([part.reference_nll for part in parts]).map(math.exp),
        candidate_perplexity=mean_by_sequence([part.candidate_nll for part in parts]).map(math.exp),
        kl_by_sequence=tuple(float(part.kl.mean()) for part in parts),
        llama_cpp=llama_cpp_table(all_),
        floor=floor,
    )
