"""The figures of the scorecard as SVG, in two widths, with colours that the page's theme decides.

Matplotlib draws with placeholder colours; each becomes a CSS variable with the light theme's value as its fallback, so
that the same drawing is readable in light and dark, inside the page and as a file of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from lab.estimate import Estimate
from lab.metrics import metric, show
from lab.recipes import REFERENCE_STACK, SCHEMES
from lab.scorecard import Row, Scorecard
from oracles.contract import STACKS

# placeholder -> (CSS variable, light value); the hues are told apart by people with colour-blindness (Okabe-Ito).
INKS = {
    "#010101": ("--ink", "#1c1c1a"),
    "#020202": ("--muted", "#6b6a66"),
    "#030303": ("--rule", "#d9d7d0"),
    "#040404": ("--stack-engine", "#0b6bb0"),
    "#050505": ("--stack-mlx-lm", "#c8551b"),
    "#060606": ("--stack-optiq", "#2b8a6b"),
}
INK, MUTED, RULE = "#010101", "#020202", "#030303"
STACK_INK = dict(zip(STACKS, ("#040404", "#050505", "#060606"), strict=True))
MARKER = dict(zip(SCHEMES, ("o", "s", "^"), strict=True))
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
WIDE_IN, NARROW_IN = 7.6, 3.5
POINTS = 9.5
# Stacks with equal bits or bytes share a point; offsets and rings of three sizes keep all of them visible.
SIDE_POINTS = dict(zip(STACKS, (-6.0, 0.0, 6.0), strict=True))
RING_POINTS = dict(zip(STACKS, (13.0, 9.0, 5.0), strict=True))


@dataclass(frozen=True)
class Drawing:
    """One figure in two widths; `alt` says in words what it shows."""

    name: str
    title: str
    alt: str
    wide: str
    narrow: str


def themed(svg: str, prefix: str) -> str:
    """Matplotlib's SVG as an inline element: no XML preamble, unique ids, CSS variables for the placeholders."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r'(?<=\bid=")', prefix, body)
    body = re.sub(r'(?<=href="#)', prefix, body)
    body = re.sub(r"(?<=url\(#)", prefix, body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, body)
    for placeholder, (variable, light) in INKS.items():
        body = body.replace(placeholder, f"var({variable}, {light})")
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body).groups()  # type: ignore[union-attr]
    opening = f'<svg class="{prefix}" viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg"'
    opening += ' xmlns:xlink="http://www.w3.org/1999/xlink">'
    return opening + body[body.index(">") + 1 :]


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(RULE)
    axes.tick_params(colors=MUTED, labelsize=POINTS - 1, length=3, width=0.6)
    axes.grid(color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scorecard", "font.size": POINTS}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _errors(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[estimate.value - estimate.low], [estimate.high - estimate.value]]


def _span(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Axis limits that hold every value and its interval; an interval longer than half to double is cut off there."""
    values = [e.value for e in estimates]
    lows = [e.value if e.low is None else max(e.low, e.value / 2) for e in estimates]
    highs = [e.value if e.high is None else min(e.high, e.value * 2) for e in estimates]
    low, high = min(lows + values), max(highs + values)
    margin = 0.06 * (high - low) or 0.05 * high
    return low - margin, high + margin


def _legend(figure: Figure, rows: Sequence[Row], narrow: bool) -> None:
    stacks = [s for s in STACKS if any(r.spec.stack == s for r in rows)]
    handles = [Line2D([], [], marker="o", ls="", color=STACK_INK[s], label=s, ms=6) for s in stacks]
    for kv in SCHEMES:
        handles.append(Line2D([], [], marker=MARKER[kv], ls="", mfc="none", mec=MUTED, label=kv, ms=6))
    legend = figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=3 if narrow else 6,
        frameon=False,
        fontsize=POINTS - 0.5,
        handletextpad=0.2,
        columnspacing=1.2,
        borderpad=0,
    )
    for text in legend.get_texts():
        text.set_color(INK)


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=MUTED, fontsize=POINTS)
    axes.set_ylabel(y, color=MUTED, fontsize=POINTS)


def _axis(what: str, good: str, narrow: bool) -> str:
    """An axis label. A phone has no room for its direction."""
    return what if narrow else f"{what} ({good} is better)"


def _points(axes: Axes, rows: Sequence[Row], x_name: str, y_name: str, x_scale: float = 1.0) -> None:
    scale = axes.figure.dpi_scale_trans
    for row in rows:
        x, y = row.metrics[x_name].scaled(x_scale), row.metrics[y_name]
        faint = 0.5 if row.on_frontier is False else 1.0
        side = ScaledTranslation(SIDE_POINTS[row.spec.stack] / 72, 0, scale)
        ink = STACK_INK[row.spec.stack]
        axes.errorbar(
            [x.value],
            [y.value],
            xerr=_errors(x),
            yerr=_errors(y),
            fmt=MARKER[row.spec.kv],
            ms=7,
            mfc=ink if row.on_frontier else "none",
            mec=ink,
            mew=1.3,
            ecolor=ink,
            elinewidth=1,
            alpha=faint,
            transform=axes.transData + side,
        )


def speed_memory(rows: Sequence[Row], context: int, width: float) -> str:
    """Decode speed over peak memory, intervals drawn; filled markers stand on the frontier."""
    narrow = width == NARROW_IN
    figure, axes = _figure(width, 3.3 if narrow else 3.9)
    _points(axes, rows, "peak_bytes", "decode_tok_s", 1 / 2**20)
    memory = [row.metrics["peak_bytes"].value / 2**20 for row in rows]
    reach = max(0.15 * (max(memory) - min(memory)), 0.002 * max(memory))
    axes.set_xlim(min(memory) - reach, max(memory) + reach)
    axes.set_ylim(*_span([row.metrics["decode_tok_s"] for row in rows]))
    _label(axes, _axis(f"peak memory at {context} tokens, MiB", "less", narrow), _axis("decode, tok/s", "more", narrow))
    _legend(figure, rows, narrow)
    return _svg(figure)


def ratios(rows: Sequence[Row], width: float) -> str:
    """Decode and prefill speed of each recipe over the reference recipe's, with intervals."""
    shown = [row for row in rows if row.decode_ratio is not None and row.prefill_ratio is not None]
    narrow = width == NARROW_IN
    figure, axes = _figure(width, 0.34 * len(shown) + 1.0)
    axes.axvline(1, color=INK, linewidth=0.9)
    for i, row in enumerate(reversed(shown)):
        for shift, estimate, fill in ((0.14, row.decode_ratio, True), (-0.14, row.prefill_ratio, False)):
            assert estimate is not None
            ink = STACK_INK[row.spec.stack]
            axes.errorbar(
                [estimate.value],
                [i + shift],
                xerr=_errors(estimate),
                fmt="o",
                ms=5.5,
                mfc=ink if fill else "none",
                mec=ink,
                ecolor=ink,
                elinewidth=1.1,
            )
    drawn = [e for row in shown for e in (row.decode_ratio, row.prefill_ratio) if e is not None]
    low, high = _span(drawn)
    axes.set_xlim(min(low, 0.98), max(high, 1.02))
    axes.set_yticks(range(len(shown)), [row.name for row in reversed(shown)])
    axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=POINTS - 0.5)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel(f"speed over {REFERENCE_STACK} native (1 = equal)", color=MUTED, fontsize=POINTS)
    handles = [
        Line2D([], [], marker="o", ls="", color=MUTED, label="decode", ms=5.5),
        Line2D([], [], marker="o", ls="", mfc="none", mec=MUTED, label="prefill", ms=5.5),
    ]
    legend = figure.legend(
        handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=POINTS - 0.5, borderpad=0
    )
    for text in legend.get_texts():
        text.set_color(INK)
    if narrow:
        axes.tick_params(axis="y", labelsize=POINTS - 1.5)
    return _svg(figure)


def size_quality(rows: Sequence[Row], context: int, width: float) -> str:
    """KL over KV cache size; zero is drawn at the left end of a symmetric log axis."""
    narrow = width == NARROW_IN
    figure, axes = _figure(width, 3.1 if narrow else 3.3)
    for row in rows:
        x, y, ink = row.metrics["kv_bytes"].scaled(1 / 2**20), row.metrics["kl_nats"], STACK_INK[row.spec.stack]
        marker, size = MARKER[row.spec.kv], RING_POINTS[row.spec.stack]
        axes.errorbar(
            [x.value], [y.value], yerr=_errors(y), fmt=marker, ms=size, mfc="none", mec=ink, mew=1.4, ecolor=ink
        )
    axes.set_yscale("symlog", linthresh=1e-4, linscale=0.6)
    axes.set_ylim(-2.5e-5, 4 * max(max(row.metrics["kl_nats"].value for row in rows), 1e-4))
    axes.set_xlim(left=0)
    axes.margins(x=0.12)
    _label(axes, _axis(f"KV cache at {context} tokens, MiB", "less", narrow), _axis("KL, nats", "less", narrow))
    _legend(figure, rows, narrow)
    return _svg(figure)


def draw(card: Scorecard) -> list[Drawing]:
    """All figures of the page. Nothing is drawn of a recipe that did not run."""
    rows, context = card.measured, card.profile.context

    def said(names: Sequence[str]) -> str:
        return "; ".join(
            f"{row.name}: " + ", ".join(f"{metric(n).label} {show(n, row.metrics[n].value)}" for n in names)
            for row in rows
        )

    plans = (
        ("frontier", "Speed and memory", ("decode_tok_s", "peak_bytes"), lambda w: speed_memory(rows, context, w)),
        ("ratios", f"Speed against {REFERENCE_STACK}", ("decode_tok_s", "prefill_tok_s"), lambda w: ratios(rows, w)),
        ("quality", "Cache size and fidelity", ("kv_bytes", "kl_nats"), lambda w: size_quality(rows, context, w)),
    )
    return [
        Drawing(
            name=name,
            title=title,
            alt=said(names),
            wide=themed(paint(WIDE_IN), f"{name}-wide"),
            narrow=themed(paint(NARROW_IN), f"{name}-narrow"),
        )
        for name, title, names, paint in plans
    ]
