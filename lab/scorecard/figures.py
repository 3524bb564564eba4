"""The figures of one model's card, each with its intervals: in two widths for the page, and as SVG and PNG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from lab.estimate import Estimate
from lab.ink import MARKERS, NARROW_IN, PNG, POINTS, SVG, WIDE_IN, Theme, alone, bare, png_of, svg_of, themed
from lab.metrics import metric, show
from lab.recipes import REFERENCE
from lab.scorecard.card import ModelCard, Point, Row
from lab.scorecard.sheets import anchor
from oracles.contract import STACKS

MOST_ROWS = 30  # of the figures with a line for each recipe
MOST_NAMES = 6  # of stacks, and of schemes, in a legend
CHAR_POINTS, HANDLE_POINTS, LINE_IN = 5.2, 42.0, 0.18  # of a legend's entry: a character, its sample, its height
LABEL_CHARS = 30
NEAR = 0.03  # of the axis: values closer than this are drawn beside each other
SIDE_STEP, WIDEST_SIDE = 7.0, 56.0  # points between neighbours, and in all
CUT_OFF = "Bars that pass half or double their value are cut off."


@dataclass(frozen=True)
class Drawing:
    """One figure: `wide` and `narrow` are inline SVG, `svg` and `png` files; alt says in words what it shows."""

    name: str
    title: str
    caption: str
    alt: str
    wide: str
    narrow: str
    svg: str
    png: bytes


Paint = Callable[[Theme, bool], Figure]


def shortened(name: str, most: int = LABEL_CHARS) -> str:
    """A name that fits beside an axis: its middle gives way."""
    keep = (most - 1) // 2
    return name if len(name) <= most else f"{name[:keep]}…{name[-keep:]}"


def stacks_of(rows: Sequence[Row]) -> list[str]:
    """The stacks in the order of their colours: those of the house first."""
    found = dict.fromkeys(row.spec.stack for row in rows)
    return [*(stack for stack in STACKS if stack in found), *(stack for stack in found if stack not in STACKS)]


def markers_of(rows: Sequence[Row]) -> dict[str, str]:
    """KV scheme -> marker."""
    return {kv: MARKERS[i % len(MARKERS)] for i, kv in enumerate(dict.fromkeys(row.spec.kv for row in rows))}


def _bars(estimate: Estimate, scale: float = 1.0) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[scale * (estimate.value - estimate.low)], [scale * (estimate.high - estimate.value)]]


def span(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Axis limits that hold every value and its interval; an interval longer than half to double is cut off there."""
    values = [e.value for e in estimates]
    lows = [e.value if e.low is None else max(e.low, e.value / 2) for e in estimates]
    highs = [e.value if e.high is None else min(e.high, e.value * 2) for e in estimates]
    low, high = min(lows + values), max(highs + values)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _legend(figure: Figure, theme: Theme, handles: list[Line2D], columns: int) -> None:
    legend = figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=POINTS - 0.5,
        handletextpad=0.4,
        columnspacing=1.2,
        borderpad=0,
    )
    for text in legend.get_texts():
        text.set_color(theme.ink)


def _entries(theme: Theme, rows: Sequence[Row], narrow: bool) -> list[Line2D]:
    """What colours, dashes and markers stand for, in few entries."""
    looks, markers = theme.looks(stacks_of(rows)), markers_of(rows)
    most = 16 if narrow else LABEL_CHARS
    handles = [
        Line2D([], [], color=look.ink, ls=look.dash, lw=1.6, label=shortened(stack, most))
        for stack, look in list(looks.items())[:MOST_NAMES]
    ]
    for kv, marker in list(markers.items())[:MOST_NAMES]:
        handles.append(
            Line2D([], [], marker=marker, ls="", mfc="none", mec=theme.muted, label=shortened(kv, most), ms=6)
        )
    left = len(looks) + len(markers) - len(handles)
    return [*handles, Line2D([], [], ls="", label=f"and {left} more")] if left else handles


def _keyed(theme: Theme, rows: Sequence[Row], narrow: bool, height: float) -> tuple[Figure, Axes]:
    """An empty figure with the key of its rows above the axes, which keep `height` inches whatever the key takes."""
    handles, width = _entries(theme, rows, narrow), NARROW_IN if narrow else WIDE_IN
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(72 * width / (CHAR_POINTS * longest + HANDLE_POINTS))))
    lines = -(-len(handles) // columns)
    figure, axes = bare(theme, width, height + LINE_IN * (lines - 1))
    _legend(figure, theme, handles, columns)
    return figure, axes


def _label(axes: Axes, theme: Theme, x: str, y: str) -> None:
    axes.set_xlabel(x, color=theme.muted, fontsize=POINTS)
    axes.set_ylabel(y, color=theme.muted, fontsize=POINTS)


def _axis(what: str, good: str, narrow: bool) -> str:
    """An axis label; on a phone its direction takes a line of its own."""
    return f"{what}{chr(10) if narrow else ' '}({good} is better)"


def _known(row: Row, *names: str) -> bool:
    return not row.why_not and all(row.cell(name).estimate is not None for name in names)


def _of(row: Row, name: str) -> Estimate:
    found = row.cell(name).estimate
    assert found is not None
    return found


def apart(values: Sequence[float]) -> list[float]:
    """Offsets in points that keep the markers of nearly equal values beside each other, in the order given."""
    near = NEAR * (max(values) - min(values)) if values else 0.0
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    groups: list[list[int]] = []
    for i in order:
        if groups and values[i] - values[groups[-1][0]] <= near:
            groups[-1].append(i)
        else:
            groups.append([i])
    found = [0.0] * len(values)
    for group in groups:
        step = min(SIDE_STEP, WIDEST_SIDE / len(group))
        for place, i in enumerate(sorted(group)):
            found[i] = step * (place - (len(group) - 1) / 2)
    return found


def speed_memory(rows: Sequence[Row], context: int, theme: Theme, narrow: bool) -> Figure:
    """Decode speed over peak memory; filled markers stand on the frontier."""
    figure, axes = _keyed(theme, rows, narrow, 3.4 if narrow else 3.9)
    looks, markers = theme.looks(stacks_of(rows)), markers_of(rows)
    sides = apart([_of(row, "peak_bytes").value for row in rows])
    for row, offset in zip(rows, sides, strict=True):
        x, y, look = _of(row, "peak_bytes").scaled(1 / 2**20), _of(row, "decode_tok_s"), looks[row.spec.stack]
        side = ScaledTranslation(offset / 72, 0, figure.dpi_scale_trans)
        drawn = axes.errorbar(
            [x.value],
            [y.value],
            xerr=_bars(x),
            yerr=_bars(y),
            fmt=markers[row.spec.kv],
            ms=7,
            mfc=look.ink if row.on_frontier else "none",
            mec=look.ink,
            mew=1.3,
            ecolor=look.ink,
            elinewidth=1.1,
            transform=axes.transData + side,
        )
        for bar in drawn[2]:
            bar.set_linestyle(look.dash)
    memory = [_of(row, "peak_bytes").value / 2**20 for row in rows]
    reach = max(0.15 * (max(memory) - min(memory)), 0.002 * max(memory))
    axes.set_xlim(min(memory) - reach, max(memory) + reach)
    axes.set_ylim(*span([_of(row, "decode_tok_s") for row in rows]))
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7))
    _label(
        axes,
        theme,
        _axis(f"peak memory at {context} tokens, MiB", "less", narrow),
        _axis("decode, tok/s", "more", narrow),
    )
    return figure


def ratios(rows: Sequence[Row], theme: Theme, narrow: bool) -> Figure:
    """Decode and prefill speed of each recipe over the reference's, a line a recipe."""
    figure, axes = bare(theme, NARROW_IN if narrow else WIDE_IN, 0.34 * len(rows) + 1.0)
    looks = theme.looks(stacks_of(rows))
    axes.axvline(1, color=theme.ink, linewidth=0.9)
    drawn = []
    for i, row in enumerate(reversed(rows)):
        look = looks[row.spec.stack]
        for shift, name, marker in ((0.16, "decode_ratio", "o"), (-0.16, "prefill_ratio", "s")):
            estimate = row.cell(name).estimate
            if estimate is None:
                continue
            drawn.append(estimate)
            fill = look.ink if marker == "o" else "none"
            bar = axes.errorbar(
                [estimate.value], [i + shift], xerr=_bars(estimate), fmt=marker, ms=5.5, mfc=fill, mec=look.ink,
                ecolor=look.ink, elinewidth=1.1,
            )  # fmt: skip
            for line in bar[2]:
                line.set_linestyle(look.dash)
    low, high = span(drawn)
    axes.set_xlim(min(low, 0.98), max(high, 1.02))
    most = 18 if narrow else LABEL_CHARS
    axes.set_yticks(range(len(rows)), [shortened(row.name, most) for row in reversed(rows)])
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink, labelsize=POINTS - (1.5 if narrow else 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(_axis(f"speed over {REFERENCE.name}", "more", narrow), color=theme.muted, fontsize=POINTS)
    handles = [
        Line2D([], [], marker="o", ls="", color=theme.muted, label="decode", ms=5.5),
        Line2D([], [], marker="s", ls="", mfc="none", mec=theme.muted, label="prefill", ms=5.5),
    ]
    _legend(figure, theme, handles, 2)
    return figure


def size_quality(rows: Sequence[Row], context: int, theme: Theme, narrow: bool) -> Figure:
    """KL over KV cache size; zero is drawn at the lower end of a symmetric log axis."""
    figure, axes = _keyed(theme, rows, narrow, 3.2)
    looks, markers = theme.looks(stacks_of(rows)), markers_of(rows)
    for row in rows:
        x, y, look = _of(row, "kv_bytes").scaled(1 / 2**20), _of(row, "kl_nats"), looks[row.spec.stack]
        drawn = axes.errorbar(
            [x.value], [y.value], yerr=_bars(y), fmt=markers[row.spec.kv], ms=look.ring, mfc="none", mec=look.ink,
            mew=1.4, ecolor=look.ink, clip_on=False,
        )  # fmt: skip
        for bar in drawn[2]:
            bar.set_linestyle(look.dash)
    axes.set_yscale("symlog", linthresh=1e-4, linscale=0.6)
    axes.set_ylim(-2.5e-5, 4 * max(max(_of(row, "kl_nats").high or _of(row, "kl_nats").value for row in rows), 1e-4))
    widest = max(_of(row, "kv_bytes").value for row in rows) / 2**20
    axes.set_xlim(0, 1.12 * widest)
    _label(axes, theme, _axis(f"KV cache at {context} tokens, MiB", "less", narrow), _axis("KL, nats", "less", narrow))
    return figure


def history(points: Sequence[Point], theme: Theme, narrow: bool) -> Figure:
    """The default's decode speed over the reference's, by state of the source."""
    figure, axes = bare(theme, NARROW_IN if narrow else WIDE_IN, 2.7)
    axes.axhline(1, color=theme.ink, linewidth=0.9)
    ratios_ = [point.ratio.estimate for point in points if point.ratio.estimate is not None]
    for i, point in enumerate(points):
        estimate = point.ratio.estimate
        if estimate is not None:
            fill = theme.stacks[0] if point.ratio.state == "stable" else "none"
            axes.errorbar(
                [i], [estimate.value], yerr=_bars(estimate), fmt="o", ms=6, mfc=fill, mec=theme.stacks[0],
                ecolor=theme.stacks[0], elinewidth=1.1,
            )  # fmt: skip
    low, high = span(ratios_)
    axes.set_ylim(min(low, 0.98), max(high, 1.02))
    axes.set_xlim(-0.5, len(points) - 0.5)
    every = max(1, -(-len(points) // (3 if narrow else 9)))
    shown = range(0, len(points), every)
    axes.set_xticks(list(shown), [f"{points[i].code[:7]}\n{points[i].day}" for i in shown])
    axes.grid(visible=False, axis="x")
    _label(axes, theme, "commit, in the order of measuring", _axis("decode ratio", "more", True))
    return figure


def volume(card: ModelCard, theme: Theme, narrow: bool) -> Figure:
    """The joint hypervolume of each stack, with its interval."""
    assert card.frontier is not None
    found = card.frontier.hypervolume
    figure, axes = bare(theme, NARROW_IN if narrow else WIDE_IN, 0.36 * len(found) + 0.9)
    looks = theme.looks(stacks_of(card.measured))
    for i, (stack, (value, low, high)) in enumerate(reversed(list(found.items()))):
        # A quantile of a bootstrap can lie on the other side of the value itself.
        bars = None if low is None or high is None else [[max(0.0, value - low)], [max(0.0, high - value)]]
        look = looks[stack]
        drawn = axes.errorbar([value], [i], xerr=bars, fmt="o", ms=6, color=look.ink, elinewidth=1.1)
        for bar in drawn[2]:
            bar.set_linestyle(look.dash)
    most = 16 if narrow else LABEL_CHARS
    axes.set_yticks(range(len(found)), [shortened(stack, most) for stack in reversed(list(found))])
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink, labelsize=POINTS - 0.5)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(_axis("share of the box around the reference", "more", narrow), color=theme.muted, fontsize=POINTS)
    return figure


def drawing(card: ModelCard, name: str, title: str, caption: str, alt: str, paint: Paint) -> Drawing:
    """One figure in all of its forms."""
    full = anchor(name, card.label)
    wide = themed(svg_of(paint(SVG, False)), f"{full}-wide")
    return Drawing(
        name=full,
        title=title,
        caption=caption,
        alt=alt,
        wide=wide,
        narrow=themed(svg_of(paint(SVG, True)), f"{full}-narrow"),
        svg=alone(wide),
        png=png_of(paint(PNG, False)),
    )


def _said(rows: Sequence[Row], *names: str) -> str:
    return "; ".join(
        f"{row.name}: " + ", ".join(f"{metric(n).label} {show(n, row.cell(n).value)}" for n in names) for row in rows
    )


def _ratio_words(row: Row) -> str:
    named = (("decode", row.cell("decode_ratio").value), ("prefill", row.cell("prefill_ratio").value))
    return ", ".join(f"{what} {value:.2f}" for what, value in named if value is not None)


def _not_drawn(card: ModelCard, shown: Sequence[Row]) -> str:
    left = [row.name for row in card.rows if row not in shown]
    more = "" if len(left) <= MOST_NAMES else f" and {len(left) - MOST_NAMES} more"
    return f" Not drawn, for lack of a number: {', '.join(left[:MOST_NAMES])}{more}." if left else ""


def draw(card: ModelCard) -> list[Drawing]:
    """Every figure that has something to show."""
    context, found = card.profile.context, []
    rows = [row for row in card.rows if _known(row, "peak_bytes", "decode_tok_s")]
    if rows:
        caption = "Filled markers stand on the frontier, hollow ones do not. Bars are 95 % intervals; memory is "
        caption += f"counted, has none, and nearly equal ones stand side by side. {CUT_OFF}{_not_drawn(card, rows)}"
        alt = _said(rows, "decode_tok_s", "peak_bytes")
        found.append(
            drawing(card, "frontier", "Speed and memory", caption, alt, lambda t, n: speed_memory(rows, context, t, n))
        )
    compared = [row for row in card.rows if _known(row, "decode_ratio") or _known(row, "prefill_ratio")]
    if compared:
        first = compared[:MOST_ROWS]
        cut = f" The first {MOST_ROWS} of {len(compared)} recipes; the table has all." if first != compared else ""
        caption = f"Paired by {card.unit}. A bar that crosses the line shows no difference. {CUT_OFF}{cut}"
        title = f"Speed against {REFERENCE.stack}"
        alt = "; ".join(f"{row.name}: {_ratio_words(row)}" for row in first)
        found.append(drawing(card, "ratios", title, caption, alt, lambda t, n: ratios(first, t, n)))
    scored = [row for row in card.rows if _known(row, "kv_bytes", "kl_nats")]
    if scored:
        caption = "KL below 0.0001 nats is drawn on a linear stretch, so that an exact zero can be shown. Bars are "
        caption += f"95 % intervals by sequence.{_not_drawn(card, scored)}"
        alt, title = _said(scored, "kv_bytes", "kl_nats"), "Cache size and fidelity"
        found.append(drawing(card, "quality", title, caption, alt, lambda t, n: size_quality(scored, context, t, n)))
    found += _over_time(card)
    return found


def _over_time(card: ModelCard) -> list[Drawing]:
    found = []
    known = [point for point in card.history if point.ratio.estimate is not None]
    if known:
        alt = "; ".join(f"{point.code}: {point.ratio.value:.3f}" for point in known)
        caption = "engine native over mlx-lm native in the same run. A hollow point is unstable: the table says why."
        title = "The default over commits"
        found.append(drawing(card, "history", title, caption, alt, lambda t, n: history(known, t, n)))
    if card.frontier is not None and card.frontier.hypervolume:
        alt = "; ".join(f"{stack}: {value[0]:.3f}" for stack, value in card.frontier.hypervolume.items())
        caption = "Joint hypervolume of a stack's recipes on the four axes; bars are 95 % intervals, bootstrapped over "
        caption += f"{card.unit}s and sequences."
        found.append(drawing(card, "volume", "Hypervolume", caption, alt, lambda t, n: volume(card, t, n)))
    return found
