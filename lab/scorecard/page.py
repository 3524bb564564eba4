"""The page: one HTML file that loads nothing. Tables come from `sheets`; every number's anchor is made here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2

from lab.frontier import BOOTSTRAP_DRAWS
from lab.ink import STACK_COLOURS
from lab.metrics import show
from lab.recipes import AGAIN, REFERENCE, Sample
from lab.scorecard import words
from lab.scorecard.card import ModelCard, Row, Scorecard
from lab.scorecard.figures import Drawing
from lab.scorecard.runs import Run
from lab.scorecard.sheets import (
    Entry,
    Table,
    anchor,
    experiments_table,
    history_table,
    parity_table,
    recipe_anchor,
    recipes_table,
    run_anchor,
    scores_table,
    volume_table,
    zoo_table,
)

SAMPLE_COLUMNS = ("decode_tok_s", "prefill_tok_s", "ttft_ms", "peak_bytes", "rss_bytes", "kv_bytes")


@dataclass(frozen=True)
class Marked:
    """A table with the numbers of the footnotes of its grey cells, and the footnotes: each kind of reason once. What
    was measured in a cell stands with its samples."""

    table: Table
    notes: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> Marked:
        grey = [entry for row in table.rows for entry in row if entry.grey]
        return cls(table, tuple(dict.fromkeys(general(reason) for entry in grey for reason in entry.reasons)))

    def numbers(self, entry: Entry) -> list[int]:
        """The footnotes of an entry."""
        kinds = {general(reason) for reason in entry.reasons} if entry.grey else set()
        return [i + 1 for i, note in enumerate(self.notes) if note in kinds]


def general(reason: str) -> str:
    """A reason without what was measured: `sd 44.6 %, above 12.0 %` is `sd above 12.0 %`."""
    return re.sub(r" (?:[\d.]+ %|unbounded), above ", " above ", reason)


@dataclass(frozen=True)
class Evidence:
    """What the numbers of one recipe were made of. grey: (what, why) of each number that is unstable or absent."""

    anchor: str
    recipe: str
    grey: tuple[tuple[str, str], ...]
    samples: tuple[tuple[str, Sample], ...]
    kl_units: tuple[float, ...]
    kl_run: str


def evidence(card: ModelCard, row: Row) -> Evidence:
    """Every pooled sample of a recipe with its run, and its KL by sequence."""
    samples = tuple((run.uid, s) for run in card.runs for s in run.samples if s.recipe == row.name)
    quality = card.newest.quality.get(row.name)
    units = quality.kl_units if quality else ()
    grey = tuple((name, "; ".join(cell.reasons)) for name, cell in row.cells.items() if cell.state != "stable")
    return Evidence(recipe_anchor(card, row.name), row.name, grey, samples, units, card.newest.uid if quality else "")


def run_commands(run: Run) -> str:
    """The lines that make a run again; what cannot be checked out is said."""
    if run.git_sha.startswith("wheel"):
        return f"# {run.git_sha}\n{run.command}"
    dirty = "  # the tree held changes of its own" if run.dirty else ""
    return f"git checkout {run.git_sha[:12]}{dirty}\n{run.command}"


def run_facts(run: Run) -> dict[str, str]:
    """The fingerprint of a run."""
    p = run.profile
    again = ", A/A among them" if any(s.recipe == AGAIN for s in run.samples) else ""
    return {
        "Started": run.started,
        "Commit": run.code,
        "Source of the arms": run.arms_sha256[:16],
        "Environment": run.env_sha256[:16],
        "Model": f"{run.model}; timed as {run.timing_model}, sha256 {run.model_sha256[:16]}",
        "Profile": f"{p.name}, {p.rounds} rounds, {p.prompt_tokens} + {p.decode_tokens} tokens" if p else "unknown",
        "Machine class": f"{run.limits.name}: delta {100 * run.limits.delta:g} %",
        "Machine": ", ".join(f"{k} {v}" for k, v in run.machine.items() if v is not None),
        "Boot": run.boot,
        "Python": run.python,
        "Packages": ", ".join(f"{k} {v}" for k, v in run.packages.items()),
        "Variables": ", ".join(f"{k}={v}" for k, v in run.variables.items()) or "none",
        "Sensors": ", ".join(f"{s['name']} {s['status']}" for s in run.sensors) or "not read",
        "Samples": f"{len(run.samples)}{again}",
    }


def sortable(entry: Entry) -> str:
    """What the page sorts a cell by; "" goes last."""
    return "" if entry.value is None else str(entry.value)


def model_view(card: ModelCard, drawings: Sequence[Drawing]) -> dict[str, Any]:
    """Everything of one model that the template prints."""
    return {
        "card": card,
        "id": anchor("model", card.label),
        "headline": words.headline(card),
        "findings": words.findings(card),
        "notes": words.all_notes(card),
        "sizes": words.sizes_words(card),
        "aa": words.aa_words(card),
        "floor": words.floor_words(card),
        "eps": words.eps_words(card),
        "inherited": words.inherited(card),
        "drawings": drawings,
        "recipes": Marked.of(recipes_table(card)),
        "volume": Marked.of(volume_table(card)),
        "history": Marked.of(history_table(card)),
        "evidence": [evidence(card, row) for row in card.measured],
    }


def render_html(card: Scorecard, drawings: Mapping[str, Sequence[Drawing]]) -> str:
    """The page as text."""
    folder = resources.files("lab").joinpath("data")
    parts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("scorecard.html", "table.html")}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=True, loader=jinja2.DictLoader(parts), trim_blocks=True
    )
    parity, ok = words.parity_words(card)
    return environment.get_template("scorecard.html").render(
        card=card,
        style=folder.joinpath("scorecard.css").read_text(encoding="utf-8"),
        script=folder.joinpath("sort.js").read_text(encoding="utf-8"),
        colours=STACK_COLOURS,
        headline=words.page_headline(card),
        parity_words=parity,
        parity_ok=ok,
        experiment_words=words.experiment_words(card),
        axes=words.axes_words(),
        draws=f"{BOOTSTRAP_DRAWS:,}",
        reference=REFERENCE.name,
        models=[model_view(model, drawings[model.label]) for model in card.models],
        parity=Marked.of(parity_table(card.suites)),
        experiments=Marked.of(experiments_table(card.experiments)),
        scores=Marked.of(scores_table(card.scores)) if card.scores else None,
        zoo=Marked.of(zoo_table(card.zoo)) if card.zoo else None,
        zoo_words=words.zoo_words(card),
        runs=[(run_anchor(run.uid), run, run_commands(run), run_facts(run)) for run in card.runs],
        sample_columns=SAMPLE_COLUMNS,
        show=show,
        anchor=anchor,
        run_anchor=run_anchor,
        sortable=sortable,
    )
