"""The scorecard's figures: colours for grey paper and for the colour-blind, intervals in each, long and many names."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from matplotlib.collections import LineCollection
from scorecard_fakes import PROFILE, invented_run, model_of

from lab.estimate import Estimate
from lab.ink import DASHES, PNG, STACK_COLOURS, SVG, themed
from lab.recipes import RECIPES, RecipeSpec
from lab.scorecard import figures
from lab.scorecard.build import build_model
from lab.scorecard.card import Cell, ModelCard

PAPER = ("#ffffff", "#1c1d1b")


def luminance(colour: str) -> float:
    """Relative, as the contrast rules of the web have it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def card() -> ModelCard:
    first = invented_run(RECIPES)
    return model_of(first)


@pytest.mark.parametrize("theme", [0, 1])
def test_stacks_are_seen_on_their_paper_and_told_apart_in_grey(theme: int) -> None:
    """The three stacks of the house differ in lightness by a quarter and more; all have a contrast of 3 to 1.

    A planted palette of one lightness fails here.
    """
    colours = [pair[theme] for pair in STACK_COLOURS]
    assert all(contrast(colour, PAPER[theme]) >= 3 for colour in colours)
    for one, other in itertools.combinations(colours[:3], 2):
        assert contrast(one, other) > 1.25, (one, other)
    looks = (SVG, PNG)[theme].looks(("engine", "mlx-lm", "optiq"))
    assert len({str(look.dash) for look in looks.values()}) == 3 == len(DASHES)


def test_more_stacks_than_colours_differ_in_their_dashes() -> None:
    looks = PNG.looks([f"s{i}" for i in range(18)])
    assert len({(look.ink, str(look.dash)) for look in looks.values()}) == 18


def bars(figure: object) -> int:
    """Error bars of a figure that have a length."""
    found = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]  # type: ignore[attr-defined]
    return sum(
        float(abs(segment[1] - segment[0]).max()) > 0 for c in found for segment in c.get_segments() if len(segment) > 1
    )


def test_every_figure_draws_its_intervals(card: ModelCard) -> None:
    """Planted break: an errorbar without its ends."""
    rows = card.measured
    assert bars(figures.speed_memory(rows, 25, PNG, False)) == len(rows)
    compared = [row for row in rows if row.cell("decode_ratio").estimate is not None]
    assert bars(figures.ratios(compared, PNG, True)) == 2 * len(compared)
    assert bars(figures.size_quality(rows, 25, PNG, False)) >= len(rows) - 1, "a KL of zero has no width"
    assert bars(figures.history(card.history, PNG, True)) == 1
    assert card.frontier is not None
    assert bars(figures.volume(card, PNG, False)) == len(card.frontier.hypervolume)


def test_points_on_the_frontier_are_filled_and_markers_tell_schemes(card: ModelCard) -> None:
    rows = card.measured
    assert set(figures.markers_of(rows).values()) == {"o", "s", "^"}
    axes = figures.speed_memory(rows, 25, PNG, False).axes[0]
    points = [line for line in axes.lines if line.get_marker() not in ("", "None", None)]
    filled = sum(line.get_markerfacecolor() != "none" for line in points)
    assert filled == sum(bool(row.on_frontier) for row in rows)


def test_nearly_equal_values_stand_beside_each_other() -> None:
    """Planted breaks: stacks of one memory on top of each other; a far point moved."""
    offsets = figures.apart([100.0, 100.1, 150.0, 100.0])
    assert offsets[2] == 0
    near = [offsets[i] for i in (0, 1, 3)]
    assert near == sorted(near)
    assert min(b - a for a, b in itertools.pairwise(near)) == figures.SIDE_STEP
    many = figures.apart([1.0] * 200)
    assert max(many) - min(many) <= figures.WIDEST_SIDE
    assert figures.apart([]) == []


def test_a_legend_never_lies_over_points(card: ModelCard) -> None:
    """It stands above the axes, in both widths."""
    for narrow in (False, True):
        figure = figures.speed_memory(card.measured, 25, PNG, narrow)
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        assert not legend.overlaps(figure.axes[0].get_window_extent())


@pytest.mark.parametrize("narrow", [False, True])
def test_the_key_of_many_long_names_stays_on_the_paper(narrow: bool) -> None:
    """Planted breaks: a fixed number of columns; axes that shrink to nothing below a long key."""
    specs = [RecipeSpec("mlx-lm", "native"), *(RecipeSpec(f"openai:{i}-{'n' * 90}", f"{i}" * 40) for i in range(20))]
    rows = model_of(invented_run(specs)).measured
    for figure in (figures.speed_memory(rows, 25, PNG, narrow), figures.size_quality(rows, 25, PNG, narrow)):
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width
        assert legend.y1 <= figure.bbox.height + 1
        assert figure.axes[0].get_window_extent().height > 0.8 * figure.dpi * 1.5
        assert "more" in figure.legends[0].get_texts()[-1].get_text()


def test_ticks_and_labels_do_not_run_into_each_other() -> None:
    """Long names, thirty rows, a phone's width: neighbours' boxes stay apart."""
    specs = [RecipeSpec("mlx-lm", "native"), *(RecipeSpec(f"openai:{'n' * 90}-{i}", "m" * 60) for i in range(29))]
    card = model_of(invented_run(specs))
    rows = [row for row in card.measured if row.cell("decode_ratio").estimate is not None]
    figure = figures.ratios(rows, PNG, True)
    figure.canvas.draw()
    axes = figure.axes[0]
    for labels in (axes.get_yticklabels(), axes.get_xticklabels()):
        boxes = [label.get_window_extent() for label in labels if label.get_text()]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert axes.get_window_extent().width > 0.3 * figure.bbox.width


def test_absent_and_endless_intervals_are_drawn_sensibly(card: ModelCard) -> None:
    row = card.measured[0]
    wild = Cell(Estimate(10.0, 1e-6, 1e9, 3, "t"), "unstable")
    none = Cell(Estimate(10.0, None, None, 1, "none"), "unstable")
    for cell in (wild, none):
        changed = replace(row, cells=dict(row.cells) | {"decode_tok_s": cell})
        low, high = figures.speed_memory([changed], 25, PNG, True).axes[0].get_ylim()
        assert 0 < low < 10 < high < 30
    low, high = figures.span([Estimate(0.0, None, None, 1, "none")])
    assert low < 0 < high


def test_what_is_not_drawn_is_named_and_nothing_to_draw_is_no_figure(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "svg_of", lambda figure: '<svg viewBox="0 0 1 1"></svg>')
    monkeypatch.setattr(figures, "png_of", lambda figure: b"")
    run = invented_run(RECIPES)
    lost = tuple(replace(s, peak_bytes=None) if s.recipe == "optiq kv4" else s for s in run.samples)
    drawn = {drawing.name: drawing for drawing in figures.draw(model_of(replace(run, samples=lost)))}
    assert "Not drawn, for lack of a number: optiq kv4." in drawn[f"frontier-{card.label}"].caption
    nothing = tuple(replace(s, decode_tok_s=math.nan, kv_bytes=None) for s in run.samples)
    assert [d.title for d in figures.draw(model_of(replace(run, samples=nothing)))] == ["Speed against mlx-lm"]


def test_history_thins_its_ticks() -> None:
    first = invented_run(RECIPES[:2])
    runs = [replace(first, uid=f"{i:03d}", arms_sha256=f"{i:064d}", git_sha=f"{i:040d}") for i in range(60)]
    card = build_model(runs)
    assert card is not None
    assert len(card.history) == 60
    figure = figures.history(card.history, PNG, True)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert first.profile == PROFILE


def test_an_svg_has_unique_ids_and_no_address() -> None:
    svg = '<?xml version="1.0"?><svg viewBox="0 0 1 2" xmlns:xlink="http://x"><metadata>http://y</metadata>'
    svg += '<g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    found = themed(svg, "p-")
    assert 'id="p-a"' in found
    assert 'href="#p-a" clip-path="url(#p-a)"' in found
    assert "http" not in found
