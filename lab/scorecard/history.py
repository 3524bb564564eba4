"""The default recipe over states of the source: the same model and sizes, measured beside the reference. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.estimate import Estimate, counted, ratio, timing
from lab.recipes import DEFAULT, REFERENCE
from lab.scorecard.card import Cell, Point
from lab.scorecard.pools import by_code, units_of
from lab.scorecard.runs import Run
from lab.scorecard.steadiness import spread_reasons


def points(runs: Sequence[Run], like: Run) -> tuple[Point, ...]:
    """One point for each state of the source with a run of the model and sizes of `like`, oldest first."""
    return tuple(_point(group) for group in by_code(runs, like))


def _point(runs: Sequence[Run]) -> Point:
    newest = runs[-1]
    units = units_of(runs, [DEFAULT.name, REFERENCE.name])
    if DEFAULT.name not in units.of:
        absent = Cell.absent(newest.refused.get(DEFAULT.name, f"{DEFAULT.name} was not measured"))
        return Point(newest.code, newest.day, tuple(runs), absent, absent, absent, absent)
    own = units.values(DEFAULT.name, "decode_tok_s")
    peaks = [sample.peak_bytes for sample in units.samples(DEFAULT.name) if sample.peak_bytes]
    quality = newest.quality.get(DEFAULT.name)
    scored = quality is not None and quality.kl_units and all(map(math.isfinite, quality.kl_units))

    def cell(values: Sequence[float], estimate: Estimate) -> Cell:
        reasons = tuple(spread_reasons(values, estimate, units.kind, newest.limits))
        return Cell(estimate, "unstable" if reasons else "stable", reasons)

    base = units.values(REFERENCE.name, "decode_tok_s") if REFERENCE.name in units.of else []
    finite = all(map(math.isfinite, (*own, *base)))
    return Point(
        code=newest.code,
        day=newest.day,
        runs=tuple(runs),
        ratio=cell([a / b for a, b in zip(own, base, strict=True)], ratio(own, base))
        if base and finite
        else Cell.absent(f"{REFERENCE.name} was not measured beside it"),
        decode=cell(own, timing(own)) if finite else Cell.absent("a stored value is no positive number"),
        peak=Cell(counted(peaks), "stable") if peaks else Cell.absent("no peak is stored"),
        kl=Cell(quality.kl, "stable") if quality and scored else Cell.absent("no logits were scored"),
    )
