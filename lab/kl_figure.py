"""KV bytes per token against KL of one run of `frontier kl`, as a PNG or SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from engine import errors, parse_kv
from evals.fidelity import FidelityResult
from lab.figures import INK, INKS, MUTED, RULE, STACK_INK
from lab.metrics import metric

FORMATS = (".png", ".svg")
# The kind of a request -> its marker and colour: those of the stacks, which people with colour-blindness tell apart.
KINDS = {
    "native": ("D", INK),
    "uniform": ("o", STACK_INK["engine"]),
    "mixed": ("s", STACK_INK["optiq"]),
    "turbo": ("^", STACK_INK["mlx-lm"]),
}
SIZE_IN = (7.2, 4.2)
POINTS = 9.0


def check_file(flag: str, path: str) -> None:
    """Refuse a file that could not be written, before anything runs. Errors: `InvalidValue`."""
    if Path(path).suffix not in FORMATS:
        raise errors.InvalidValue(flag, path, f"a file that ends in {' or '.join(FORMATS)}")
    if not Path(path).absolute().parent.is_dir():
        raise errors.InvalidValue(flag, path, "a file in a folder that is there")


def draw(results: Sequence[FidelityResult], title: str) -> tuple[Figure, list[str]]:
    """The figure, and the candidates whose KL of 0 has no place on a log axis."""
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    axes = figure.add_subplot()
    zero = [result.candidate.kv for result in results if result.report.kl.value == 0]
    drawn = [result for result in results if result.report.kl.value > 0]
    for i, result in enumerate(sorted(drawn, key=lambda result: result.candidate_token_bytes)):
        kl, kv = result.report.kl, result.candidate.kv
        marker, ink = KINDS[parse_kv(kv).kind]
        span = None if kl.low is None or kl.high is None else [[kl.value - kl.low], [kl.high - kl.value]]
        x = result.candidate_token_bytes
        axes.errorbar([x], [kl.value], yerr=span, fmt=marker, ms=6, color=_light(ink), elinewidth=1, capsize=3)
        # Neighbours of equal bytes get their names on both sides.
        side = (7, "left") if i % 2 == 0 else (-7, "right")
        name = kv if len(kv) < 24 else f"{kv[:6]}…{kv.rsplit('/', 1)[-1]}"
        axes.annotate(
            name,
            (x, kl.value),
            xytext=(side[0], 0),
            textcoords="offset points",
            ha=side[1],
            va="center",
            fontsize=POINTS - 1,
            color=_light(INK),
        )
    if drawn:
        axes.set_yscale("log")
    axes.margins(x=0.18)
    for side_name in ("top", "right"):
        axes.spines[side_name].set_visible(False)
    axes.grid(color=_light(RULE), linewidth=0.5, which="major")
    axes.tick_params(colors=_light(MUTED), labelsize=POINTS - 1)
    size, kl_metric = metric("kv_token_bytes"), metric("kl_nats")
    axes.set_xlabel(f"{size.label} at {results[0].plan.length} tokens, {size.unit}", fontsize=POINTS)
    axes.set_ylabel(f"{kl_metric.label}, {kl_metric.unit}, 95 % interval", fontsize=POINTS)
    axes.set_title(title, fontsize=POINTS, color=_light(INK))
    return figure, zero


def save(figure: Figure, path: str) -> None:
    """Write it; the same figure is the same bytes."""
    form = Path(path).suffix[1:]
    dates = {"Date": None} if form == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "kl", "svg.fonttype": "none"}):
        figure.savefig(path, format=form, dpi=150, metadata=dates)


def _light(placeholder: str) -> str:
    return INKS[placeholder][1]
