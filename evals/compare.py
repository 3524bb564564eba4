"""Two runs of one task, paired by item: what was won, lost, and how large a drop may hide in it.

Runs pair only where the questions were the same: task, version, items, template and token ids. Anything else is refused
with the difference named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from engine import errors
from evals.interval import ALPHA, clustered, detectable, mcnemar, tango, wilson
from evals.run import ItemResult, RunInfo

Verdict = Literal["non-inferior", "worse", "underpowered", "at floor"]
Z = float(stats.norm.ppf(1 - ALPHA))
# A reference this many margins above guessing tells something.
CLEAR = 3
POOLED_MARGIN = 1.0  # points of 100


class NotComparable(errors.FrontierError):
    """Two runs that did not ask the same."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Shares of 1. drop: mean score lost; upper: the larger of Tango's and the cluster-robust 95 % bound of it; mde:
    the drop that this many items would show; flipped: ids of items that changed, losses first.

    length_ratio: mean output tokens, candidate over reference; None where nothing was generated.
    """

    task: str
    n: int
    wins: int
    losses: int
    reference: float
    candidate: float
    drop: float
    p: float
    upper: float
    tango_upper: float
    cluster_upper: float | None
    mde: float
    margin: float
    verdict: Verdict
    why: str
    length_ratio: float | None
    flipped: tuple[str, ...]


def compare(
    reference: RunInfo, candidate: RunInfo, ours: Sequence[ItemResult], theirs: Sequence[ItemResult]
) -> Comparison:
    """`ours`: the reference's items, `theirs`: the candidate's. Errors: `NotComparable`."""
    _check(reference, candidate, ours, theirs)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not (a.not_run or b.not_run)]
    if len(pairs) < 2:
        raise NotComparable(f"{reference.task}: {len(pairs)} items were judged in both runs; at least 2 are needed")
    n = len(pairs)
    drops = [a.score - b.score for a, b in pairs]
    wins, losses = sum(d < 0 for d in drops), sum(d > 0 for d in drops)
    drop = math.fsum(drops) / n
    found = clustered(drops, [a.cluster for a, _ in pairs])
    error, quantile = found if found is not None else (0.0, 0.0)
    cluster_upper = None if found is None else drop + quantile * error
    tango_upper = tango(wins, losses, n)
    upper = max(tango_upper, tango_upper if cluster_upper is None else cluster_upper)
    # Where nothing flipped the error is not zero either: Tango's bound says what could hide.
    mde = detectable(max(error, (tango_upper - drop) / Z))
    verdict, why = _verdict(reference, pairs, drop, upper, tango(wins, losses, n, -1), mde)
    lengths = [sum(x.tokens for x in side) for side in zip(*pairs, strict=True)]
    flipped = [a.item for a, b in pairs if a.score > b.score] + [a.item for a, b in pairs if a.score < b.score]
    return Comparison(
        task=reference.task,
        n=n,
        wins=wins,
        losses=losses,
        reference=math.fsum(a.score for a, _ in pairs) / n,
        candidate=math.fsum(b.score for _, b in pairs) / n,
        drop=drop,
        p=mcnemar(wins, losses),
        upper=upper,
        tango_upper=tango_upper,
        cluster_upper=cluster_upper,
        mde=mde,
        margin=reference.margin / 100,
        verdict=verdict,
        why=why,
        length_ratio=lengths[1] / lengths[0] if lengths[0] else None,
        flipped=tuple(flipped),
    )


def at_floor(score: float, n: int, chance: float, margin: float) -> bool:
    """Whether a reference's score is too near to guessing for a task to gate: its Wilson lower bound must exceed chance
    by three margins. margin: in points of 100."""
    interval = wilson(score * n, n)
    return interval is None or interval[0] < chance + CLEAR * margin / 100


def _verdict(
    info: RunInfo, pairs: Sequence[tuple[ItemResult, ItemResult]], drop: float, upper: float, lower: float, mde: float
) -> tuple[Verdict, str]:
    margin, n = info.margin / 100, len(pairs)
    reference = math.fsum(a.score for a, _ in pairs) / n
    if at_floor(reference, n, info.chance, info.margin):
        return "at floor", f"the reference's {100 * reference:.1f} % is not clearly above the {100 * info.chance:.0f} %"
    if lower > 0 and drop >= margin:
        return "worse", f"drop {100 * drop:.1f} points, lower bound {100 * lower:.1f} above 0"
    if mde > margin:
        return "underpowered", f"{n} items show drops from {100 * mde:.1f} points on, the margin is {info.margin:g}"
    if upper < margin:
        return "non-inferior", f"upper bound {100 * upper:.1f} points below the margin of {info.margin:g}"
    return "worse", f"upper bound {100 * upper:.1f} points not below the margin of {info.margin:g}"


def _check(reference: RunInfo, candidate: RunInfo, ours: Sequence[ItemResult], theirs: Sequence[ItemResult]) -> None:
    """Raise `NotComparable` unless both were asked the same."""
    for name in ("task", "version", "template_sha256", "items"):
        left, right = getattr(reference, name), getattr(candidate, name)
        if left != right:
            raise NotComparable(f"{reference.task}: {name} differs: {left} and {right}")
    for info, found in ((reference, ours), (candidate, theirs)):
        if len(found) != info.items:
            raise NotComparable(f"{info.task}: run {info.id} is not finished: {len(found)} of {info.items} items")
    for a, b in zip(ours, theirs, strict=True):
        if a.item != b.item:
            raise NotComparable(f"{reference.task}: item {a.item} stands where the other has {b.item}")
        if a.prompt_sha256 != b.prompt_sha256:
            raise NotComparable(f"{reference.task}: the prompt of item {a.item} differs")
        if a.prompt_ids and b.prompt_ids and a.prompt_ids != b.prompt_ids:
            raise NotComparable(f"{reference.task}: token ids of item {a.item} differ")


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The mean over tasks that gate, each counting the same. upper: 95 % bound of the mean drop."""

    tasks: tuple[str, ...]
    drop: float
    upper: float
    mde: float
    verdict: Verdict | Literal["undecided: gate"]

    def line(self) -> str:
        """For people."""
        if not self.tasks:
            return "pooled: undecided: gate (no task whose reference is clearly above chance)"
        points = f"drop {100 * self.drop:.1f}, upper bound {100 * self.upper:.1f}, margin {POOLED_MARGIN:g} points"
        return f"pooled over {len(self.tasks)} tasks: {points}, MDE {100 * self.mde:.1f}: {self.verdict}"


def pooled(found: Sequence[Comparison]) -> Pooled:
    """All gating tasks together."""
    gating = [each for each in found if each.verdict != "at floor"]
    if not gating:
        return Pooled(tasks=(), drop=0.0, upper=0.0, mde=0.0, verdict="undecided: gate")
    k = len(gating)
    drop = math.fsum(each.drop for each in gating) / k
    error = math.sqrt(math.fsum(((each.upper - each.drop) / Z) ** 2 for each in gating)) / k
    upper, lower, mde, margin = drop + Z * error, drop - Z * error, detectable(error), POOLED_MARGIN / 100
    verdict: Verdict = "worse"
    if not (lower > 0 and drop >= margin):
        verdict = "underpowered" if mde > margin else "non-inferior" if upper < margin else "worse"
    return Pooled(tasks=tuple(each.task for each in gating), drop=drop, upper=upper, mde=mde, verdict=verdict)
