"""Writes reports/<machine key>/scorecard.{html,md,csv,json} and the figures. No file is ever half written."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import jinja2

from lab.figures import Drawing, draw
from lab.frontier import AXES
from lab.metrics import METRICS, metric, show, show_interval
from lab.scorecard import REFERENCE, Row, Scorecard, findings, headline, summary

COLUMNS = (
    "decode_tok_s",
    "prefill_tok_s",
    "ttft_ms",
    "peak_bytes",
    "kv_bytes",
    "artifact_bytes",
    "bpw",
    "perplexity",
    "kl_nats",
)
CUT_OFF = "Bars that pass half or double their value are cut off."
CAPTIONS = {
    "frontier": "Filled markers stand on the frontier, hollow faint ones are dominated. Bars are 95 % intervals; "
    f"memory is counted and carries none, and stacks of one value stand side by side. {CUT_OFF}",
    "ratios": f"Paired by round. A bar that crosses the line shows no difference. {CUT_OFF}",
    "quality": "KL below 0.0001 nats is drawn on a linear stretch, so that an exact zero can be shown.",
}


def _cells(row: Row) -> list[tuple[str, tuple[str, ...]]]:
    """(value, lines under it) of each table column; the frontier's verdict comes last."""
    percent = {"decode_tok_s": row.decode_percent, "prefill_tok_s": row.prefill_percent}
    cells: list[tuple[str, tuple[str, ...]]] = []
    for name in COLUMNS:
        estimate = row.metrics[name]
        under = [] if metric(name).counted else [show_interval(name, estimate.low, estimate.high)]
        if name in percent:
            under.append(f"{percent[name]:.0f} % of limit")
        cells.append((show(name, estimate.value), tuple(under)))
    probability = () if row.p_frontier is None else (f"P = {row.p_frontier:.2f}",)
    cells.append(("on" if row.on_frontier else "dominated", probability))
    return cells


def _heads() -> list[str]:
    heads = []
    for name in COLUMNS:
        row = metric(name)
        plain = row.unit and row.unit not in ("bytes", "bits")
        heads.append(f"{row.label}, {row.unit}" if plain else row.label)
    return [*heads, "frontier"]


def _eps_words(card: Scorecard) -> str:
    parts = []
    for axis in AXES:
        eps = card.frontier.eps[axis.name]
        parts.append(f"{metric(axis.name).label} {f'{100 * eps:.1f} %' if axis.ratio else f'{eps:.1e} nats'}")
    return ", ".join(parts)


def _volume_words(card: Scorecard) -> str:
    parts = []
    for stack, (value, low, high) in card.frontier.hypervolume.items():
        span = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
        parts.append(f"{stack} {value:.3f}{span}")
    return ", ".join(parts)


def _inherited(card: Scorecard) -> list[str]:
    return [
        f"{row.name} takes over the numbers of {row.same_bits_as}: equal bits at all {row.checked} checked positions."
        for row in card.measured
        if row.same_bits_as
    ]


def _stage_words(card: Scorecard) -> str:
    return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in card.stage_s.items())


def render_html(card: Scorecard, drawings: list[Drawing]) -> str:
    """The page: one file, nothing loaded from elsewhere."""
    source = resources.files("lab").joinpath("data/scorecard.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    rows = [
        {
            "name": row.name,
            "stack": row.spec.stack,
            "why_not": row.why_not,
            "cells": _cells(row) if row.why_not is None else [],
        }
        for row in card.rows
    ]
    return environment.from_string(source).render(
        card=card,
        headline=headline(card),
        findings=findings(card),
        drawings=drawings,
        captions=CAPTIONS,
        columns=_heads(),
        table=rows,
        show=show,
        axes=", ".join(f"{metric(a.name).label} ({metric(a.name).better} is better)" for a in AXES),
        eps=_eps_words(card),
        volumes=_volume_words(card),
        reference=REFERENCE,
        versions=", ".join(f"{k} {v}" for k, v in card.provenance.versions.items()),
        stages=_stage_words(card),
        inherited=_inherited(card),
    )


def render_markdown(card: Scorecard) -> str:
    """The same numbers as a Markdown file."""
    lines = [f"# {headline(card)}", "", f"Model {card.provenance.model}, machine {card.ceilings.machine}.", ""]
    lines += [f"- {line}" for line in findings(card)]
    lines += [
        f"- Parity ({card.parity.name}): {card.parity.verdict}",
        f"- Experiment {card.experiment.name}: {card.experiment.verdict}"
        + (f" (row {card.experiment.row})" if card.experiment.row else ""),
    ]
    lines += [f"  - {reason}" for reason in card.experiment.reasons]
    lines += [f"- Note: {note}" for note in card.notes]
    heads = ["recipe", *_heads()]
    lines += ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in card.rows:
        if row.why_not is not None:
            lines.append(f"| {row.name} | not run: {row.why_not.replace('|', '/')} |" + " |" * (len(heads) - 2))
        else:
            lines.append(
                "| " + " | ".join([row.name, *(f"{v} ({'; '.join(s)})" if s else v for v, s in _cells(row))]) + " |"
            )
    lines += ["", f"Memory and KV bytes at {card.profile.context} tokens. KL({REFERENCE} || recipe)."]
    lines += _inherited(card)
    lines += [f"Frontier margins: {_eps_words(card)}. Hypervolume: {_volume_words(card)}."]
    lines += ["", "```", card.provenance.command, "```", ""]
    lines += [f"Commit {card.provenance.commit}, {card.provenance.date}. Stages: {_stage_words(card)}.", ""]
    return "\n".join(lines)


def render_csv(card: Scorecard) -> str:
    """One line a recipe; three columns (value, low, high) a metric; empty where there is none."""
    names = [name for name in METRICS if any(name in row.metrics for row in card.measured)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    spans = [f"{name}{suffix}" for name in names for suffix in ("", "_low", "_high")]
    writer.writerow(["recipe", "stack", "kv", "context_tokens", *spans, "on_frontier", "p_frontier", "not_run"])
    for row in card.rows:
        values: list[object] = []
        for name in names:
            estimate = row.metrics.get(name)
            values += ["", "", ""] if estimate is None else [estimate.value, estimate.low, estimate.high]
        head = [row.name, row.spec.stack, row.spec.kv, card.profile.context]
        tail = [row.on_frontier, row.p_frontier, row.why_not]
        writer.writerow("" if value is None else value for value in [*head, *values, *tail])
    return out.getvalue()


def render_json(card: Scorecard, page: str) -> str:
    """The summary and every sample as it was taken."""
    document = summary(card, page) | {"samples": [asdict(sample) for sample in card.samples]}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write through a temporary name in the same folder, so that `path` is either old or complete."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_report(card: Scorecard, out: Path) -> Path:
    """Render everything first, then write; returns the page's path, written last."""
    folder = out / card.ceilings.machine
    page = folder / "scorecard.html"
    drawings = draw(card)
    files: Mapping[str, str] = {
        **{f"{drawing.name}.svg": drawing.wide + "\n" for drawing in drawings},
        "scorecard.csv": render_csv(card),
        "scorecard.md": render_markdown(card),
        "scorecard.json": render_json(card, page.name),
        "scorecard.html": render_html(card, drawings),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(folder / name, text)
    return page
