"""What each launch of a session showed, as numbers and as a figure: the ratio of its two processes by metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.measure import QuadResult, group_quads
from lab.metrics import TIMED
from lab.record import read_samples
from lab.stats import take_look
from lab.store import Store

BASE_INK, MARK_INK, BAND_INK, MUTED = "#1c1c1a", "#0b6bb0", "#a9cbe6", "#6b6a66"
WIDTH_IN, ROW_IN = 7.2, 1.9
ALPHA = 0.025


@dataclass(frozen=True)
class LaunchRatios:
    """One timed metric. ratios: candidate's gain of each launch, in its order, 0.03 for 3 %; nan for one without a
    valid quad. low and high: the 95 % interval over launches; infinite below two."""

    metric: str
    ratios: tuple[float, ...]
    estimate: float
    low: float
    high: float


def ratios_of(quads: Sequence[QuadResult], metric: str, delta: float) -> LaunchRatios:
    """Every launch counts here, a half one too: this shows what happened, and decides nothing."""
    groups: dict[int, list[float]] = {}
    for quad in quads:
        groups.setdefault(quad.launch, []).extend([quad.y(metric)] if quad.valid else [])
    means = [sum(group) / len(group) if group else math.nan for _, group in sorted(groups.items())]
    look = take_look([group for group in groups.values() if group], ALPHA, delta)
    return LaunchRatios(metric, tuple(math.expm1(mean) for mean in means), look.estimate, look.low, look.high)


def read_ratios(store: Store, session_id: int, delta: float) -> list[LaunchRatios]:
    """The timed metrics of a session's A/B; empty where it never came to one."""
    quads = group_quads(read_samples(store, session_id), "ab")
    whole = [quad for quad in quads if len(quad.samples) == 4]
    return [ratios_of(whole, metric, delta) for metric in TIMED] if any(quad.valid for quad in whole) else []


def draw_launches(found: Sequence[LaunchRatios], delta: float, title: str, path: Path) -> list[Path]:
    """One row a metric: a dot a launch, the estimate and its interval as a band, +-delta dotted. PNG and SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, 0.6 + ROW_IN * len(found)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    for axes, row in zip(figure.subplots(len(found), 1, squeeze=False)[:, 0], found, strict=True):
        numbers = range(1, len(row.ratios) + 1)
        if math.isfinite(row.low) and math.isfinite(row.high):
            axes.axhspan(100 * row.low, 100 * row.high, color=BAND_INK, alpha=0.5, linewidth=0)
        axes.axhline(100 * row.estimate, color=MARK_INK, linewidth=1.2)
        axes.axhline(0, color=BASE_INK, linewidth=0.8)
        for edge in (-delta, delta):
            axes.axhline(100 * edge, color=MUTED, linewidth=0.8, linestyle=":")
        axes.plot(numbers, [100 * ratio for ratio in row.ratios], "o", color=MARK_INK, markersize=4)
        axes.set_title(f"{row.metric}: candidate against base", fontsize=9, loc="left")
        axes.set_ylabel("gain, %", fontsize=8)
        axes.set_xlim(0.5, len(row.ratios) + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.get_axes()[-1].set_xlabel("launch", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    for file in written:
        figure.savefig(file, dpi=144)
    return written
