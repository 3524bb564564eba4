"""Colours, markers and the bare figure of the lab's drawings, for a page in light and dark, a file and paper.

Matplotlib draws with placeholder colours for SVG; each becomes a CSS variable with the light theme's value as its
fallback, so that one drawing is readable in both themes. PNG files take the light values. Stacks differ in lightness
too, and in their dashes, so that they can be told apart when printed in grey.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Stack colours by place: light theme, dark theme. The hues are told apart by people with colour-blindness.
STACK_COLOURS = (
    ("#003f7d", "#b9dcff"),
    ("#b84a12", "#d9722e"),
    ("#2f9e86", "#58c4a5"),
    ("#6a2c91", "#c79be6"),
    ("#9a7400", "#d9b44a"),
    ("#3a3a3a", "#c8c6c0"),
)
# placeholder -> (CSS variable, light value)
INKS = {
    "#010101": ("--ink", "#1c1c1a"),
    "#020202": ("--muted", "#6b6a66"),
    "#030303": ("--rule", "#d9d7d0"),
} | {f"#0401{i:02x}": (f"--stack-{i}", light) for i, (light, _) in enumerate(STACK_COLOURS)}
INK, MUTED, RULE = "#010101", "#020202", "#030303"
DASHES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
WIDE_IN, NARROW_IN = 7.6, 3.5
POINTS = 9.5
DPI = 150


@dataclass(frozen=True)
class Look:
    """How one stack is drawn. ring: the size of its markers where stacks lie within each other."""

    ink: str
    dash: str | tuple[float, tuple[float, ...]]
    ring: float


@dataclass(frozen=True)
class Theme:
    """The colours that a figure is drawn with: placeholders for SVG, the light theme's for PNG."""

    ink: str
    muted: str
    rule: str
    stacks: tuple[str, ...]

    def looks(self, stacks: Sequence[str]) -> dict[str, Look]:
        """Each stack's look, by its place; with more stacks than colours these begin anew with another dash."""
        count = len(self.stacks)
        return {
            stack: Look(
                ink=self.stacks[i % count],
                dash=DASHES[(i + i // count) % len(DASHES)],
                ring=max(5.0, 13.0 - 4.0 * i),
            )
            for i, stack in enumerate(stacks)
        }


SVG = Theme(INK, MUTED, RULE, tuple(f"#0401{i:02x}" for i in range(len(STACK_COLOURS))))
PNG = Theme(INKS[INK][1], INKS[MUTED][1], INKS[RULE][1], tuple(light for light, _ in STACK_COLOURS))


def themed(svg: str, prefix: str) -> str:
    """Matplotlib's SVG as an inline element: no XML preamble, no address, unique ids, CSS variables for colours."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = body.replace("xlink:href", "href")
    body = re.sub(r'(?<=\bid=")', prefix, body)
    body = re.sub(r'(?<=href="#)', prefix, body)
    body = re.sub(r"(?<=url\(#)", prefix, body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, body)
    for placeholder, (variable, light) in INKS.items():
        body = body.replace(placeholder, f"var({variable}, {light})")
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body).groups()  # type: ignore[union-attr]
    return f'<svg class="{prefix}" viewBox="0 0 {width} {height}" role="img">' + body[body.index(">") + 1 :]


def alone(inline: str) -> str:
    """An inline drawing as a file of its own, which must name the language it is written in."""
    return inline.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def bare(theme: Theme, width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.rule)
    axes.tick_params(colors=theme.muted, labelsize=POINTS - 1, length=3, width=0.6)
    axes.grid(color=theme.rule, linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def svg_of(figure: Figure) -> str:
    """Text stays text; equal figures give equal bytes."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scorecard", "font.size": POINTS}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue()


def png_of(figure: Figure) -> bytes:
    """On white, for documents and paper."""
    out = io.BytesIO()
    figure.patch.set_alpha(1)
    with matplotlib.rc_context({"font.size": POINTS}):
        figure.savefig(out, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return out.getvalue()
