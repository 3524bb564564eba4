"""One run of `frontier kl` as a PNG or SVG file: KL against bytes, by position, by domain, at the worst tokens and,
where they were asked for, the error and the lens' KL after each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from engine import parse_kv
from evals.bootstrap import Interval
from evals.fidelity import FidelityResult
from evals.layers import LayerResult
from lab.ink import INK, INKS, MUTED, RULE
from lab.metrics import metric

FORMATS = (".png", ".svg")
# The kind of a request -> its marker.
MARKERS = {"native": "D", "uniform": "o", "mixed": "s", "turbo": "^"}
# Of candidates, in the order of their bytes: told apart by people with colour-blindness (Okabe-Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7a5c00")
ALONE_IN, PANEL_IN = (7.2, 4.2), (5.6, 3.5)
POINTS = 9.0
DODGE = 0.7  # of the room of a domain that its candidates share
EMBEDDING = "emb."
DOWN_TO = 0.05  # of a mean: where an interval ends whose lower end has no place on a log axis
BEFORE = 40  # characters before a worst token


class Drawn:
    """One candidate as it looks in every panel."""

    def __init__(self, result: FidelityResult, index: int) -> None:
        kv = result.candidate.kv
        self.result = result
        self.name = kv if len(kv) < 24 else f"{kv[:6]}…{kv.rsplit('/', 1)[-1]}"
        self.marker, self.colour = MARKERS[parse_kv(kv).kind], COLOURS[index % len(COLOURS)]

    def curve(self, axes: Axes, x: Sequence[float], values: Sequence[Interval]) -> None:
        """Points joined by a line over the band of their intervals; a log axis has no place for a mean of 0."""
        kept = [(at, value) for at, value in zip(x, values, strict=True) if value.value > 0]
        if not kept:
            return
        places = [at for at, _ in kept]
        axes.plot(places, [v.value for _, v in kept], color=self.colour, marker=self.marker, ms=3.5, lw=1.1)
        spans = [(at, _low(v), v.high) for at, v in kept if v.low is not None and v.high is not None]
        if spans:
            at, low, high = zip(*spans, strict=True)
            axes.fill_between(at, low, high, color=self.colour, alpha=0.14, linewidth=0)

    def point(self, axes: Axes, x: float, value: Interval) -> None:
        """A marker with its interval; nothing for a 0."""
        if value.value <= 0:
            return
        span = None
        if value.low is not None and value.high is not None:
            span = [[value.value - _low(value)], [value.high - value.value]]
        axes.errorbar([x], [value.value], yerr=span, fmt=self.marker, ms=6, color=self.colour, elinewidth=1, capsize=3)


def draw(
    results: Sequence[FidelityResult], title: str, decode: Callable[[Sequence[int]], str]
) -> tuple[Figure, list[str]]:
    """The figure, and the candidates whose KL of 0 has no place on a log axis. decode: token ids to their text."""
    ordered = sorted(results, key=lambda result: result.candidate_token_bytes)
    zero = [result.candidate.kv for result in ordered if result.report.kl.value == 0]
    drawn = [Drawn(r, i) for i, r in enumerate(r for r in ordered if r.report.kl.value > 0)]
    panels: list[Callable[[Axes, Sequence[Drawn]], None]] = [_bytes]
    worst: Callable[[Axes, Sequence[Drawn]], None] = partial(_worst, decode=decode)
    if len(results[0].kl_by_span) > 1:
        panels.append(_positions)
    if results[0].kl_by_domain:
        panels.append(_domains)
    if results[0].layers:
        panels.append(_layer_errors)
    if results[0].layers and results[0].layers[0].lens_kl is not None:
        panels.append(_layer_lens)
    if drawn:
        panels.append(worst)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = ALONE_IN if len(panels) == 1 else (PANEL_IN[0] * columns, PANEL_IN[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    for i, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, i)
        panel(axes, drawn)
        _finish(axes, log=bool(drawn) and panel is not worst)
    if len(panels) > 1 and drawn:
        handles = [Line2D([], [], marker=d.marker, color=d.colour, label=d.name, ms=5, lw=1.1) for d in drawn]
        legend = figure.legend(
            handles=handles, loc="outside lower center", ncols=min(len(drawn), 4), frameon=False, fontsize=POINTS - 0.5
        )
        for text in legend.get_texts():
            text.set_color(_light(INK))
    figure.suptitle(title, fontsize=POINTS + 0.5, color=_light(INK))
    return figure, zero


def _bytes(axes: Axes, drawn: Sequence[Drawn]) -> None:
    for i, each in enumerate(drawn):
        x, kl = each.result.candidate_token_bytes, each.result.report.kl
        each.point(axes, x, kl)
        # Neighbours of equal bytes get their names on both sides.
        offset, side = (7, "left") if i % 2 == 0 else (-7, "right")
        axes.annotate(
            each.name,
            (x, kl.value),
            xytext=(offset, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=POINTS - 1,
            color=_light(INK),
        )
    axes.margins(x=0.18)
    size, tokens = metric("kv_token_bytes"), drawn[0].result.plan.length if drawn else 0
    axes.set_xlabel(f"{size.label} at {tokens} tokens, {size.unit}" if drawn else size.label, fontsize=POINTS)
    _kl_label(axes)


def _positions(axes: Axes, drawn: Sequence[Drawn]) -> None:
    for each in drawn:
        spans = each.result.kl_by_span
        each.curve(axes, [(span.first + span.last) / 2 for span in spans], [span.kl for span in spans])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the text, tokens", fontsize=POINTS)
    _kl_label(axes)


def _domains(axes: Axes, drawn: Sequence[Drawn]) -> None:
    names = list(drawn[0].result.kl_by_domain) if drawn else []
    for i, each in enumerate(drawn):
        shift = DODGE * ((i + 0.5) / len(drawn) - 0.5)
        for at, name in enumerate(names):
            each.point(axes, at + shift, each.result.kl_by_domain[name])
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("domain", fontsize=POINTS)
    _kl_label(axes)


def _worst(axes: Axes, drawn: Sequence[Drawn], decode: Callable[[Sequence[int]], str]) -> None:
    """Where the candidate of the largest mean is off most, and what all others say there if it is among their worst."""
    places = {(p.sequence, p.position): p for p in max(drawn, key=lambda d: d.result.report.kl.value).result.worst}
    for each in drawn:
        found = {(p.sequence, p.position): p.kl for p in each.result.worst}
        points = [(found[at], row) for row, at in enumerate(places) if found.get(at, 0.0) > 0]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, ls="", marker=each.marker, color=each.colour, ms=6)
    for row, place in enumerate(places.values()):
        before, token = (decode(ids) for ids in (place.context[:-1], place.context[-1:]))
        axes.text(
            0.02,
            row - 0.22,
            f"{_shown(before)[1:-1][-BEFORE:]} → {_shown(token)}",
            transform=axes.get_yaxis_transform(),
            fontsize=POINTS - 1,
            color=_light(INK),
        )
    axes.set_yticks([])
    axes.set_xlim(left=0)
    axes.set_ylim(len(places) - 0.5, -0.7)
    axes.set_xlabel("KL at the worst tokens, nats", fontsize=POINTS)


def _shown(text: str) -> str:
    """Quoted, as a figure can show it: line ends and what a font may lack escaped, no mathematics."""
    return ascii(text).replace("$", r"\$")


def _layer_errors(axes: Axes, drawn: Sequence[Drawn]) -> None:
    _by_layer(axes, drawn, lambda layer: layer.error)
    axes.set_ylabel("relative error of the stream, 95 % interval", fontsize=POINTS)


def _layer_lens(axes: Axes, drawn: Sequence[Drawn]) -> None:
    def lens_kl(layer: LayerResult) -> Interval:
        assert layer.lens_kl is not None
        return layer.lens_kl

    _by_layer(axes, drawn, lens_kl)
    axes.set_ylabel("logit lens: KL, nats, 95 % interval", fontsize=POINTS)


def _by_layer(axes: Axes, drawn: Sequence[Drawn], value: Callable[[LayerResult], Interval]) -> None:
    for each in drawn:
        layers = each.result.layers
        each.curve(axes, [layer.layer for layer in layers], [value(layer) for layer in layers])
    if drawn:
        numbers = [layer.layer for layer in drawn[0].result.layers]
        step = max(1, round(len(numbers) / 10))
        ticks = [numbers[0], *range(0 if step == 1 else step, numbers[-1] + 1, step)]
        axes.set_xticks(ticks, [EMBEDDING if at < 0 else str(at) for at in ticks])
        axes.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    axes.set_xlabel("after layer", fontsize=POINTS)


def _low(value: Interval) -> float:
    """Where the interval's lower end is drawn on a log axis: one at or below 0 goes down to a fixed share."""
    assert value.low is not None
    return max(value.low, value.value * DOWN_TO)


def _kl_label(axes: Axes) -> None:
    kl = metric("kl_nats")
    axes.set_ylabel(f"{kl.label}, {kl.unit}, 95 % interval", fontsize=POINTS)


def _finish(axes: Axes, *, log: bool) -> None:
    if log:
        axes.set_yscale("log")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color=_light(RULE), linewidth=0.5, which="major")
    axes.tick_params(which="both", colors=_light(MUTED), labelsize=POINTS - 1)


def save(figure: Figure, path: str) -> None:
    """Write it; the same figure is the same bytes."""
    form = Path(path).suffix[1:]
    dates = {"Date": None} if form == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "kl", "svg.fonttype": "none"}):
        figure.savefig(path, format=form, dpi=150, metadata=dates)


def _light(placeholder: str) -> str:
    return INKS[placeholder][1]
