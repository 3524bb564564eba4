"""The scorecard as Markdown, CSV and JSON: the tables of `sheets`, in other clothes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from lab.recipes import REFERENCE
from lab.scorecard.card import Cell, ModelCard, Row, Scorecard
from lab.scorecard.sheets import Entry, Table, tables
from lab.scorecard.words import (
    aa_words,
    all_notes,
    axes_words,
    eps_words,
    experiment_words,
    findings,
    headline,
    inherited,
    page_headline,
    parity_words,
    sizes_words,
    zoo_words,
)


def markdown_entry(entry: Entry) -> str:
    """Its text with what stands under it; grey is said in words."""
    under = f" ({'; '.join(entry.under)})" if entry.under else ""
    grey = " [unstable]" if entry.grey and entry.value is not None and entry.reasons else ""
    return " ".join(f"{entry.text}{under}{grey}".replace("|", "/").split())


def markdown_table(table: Table) -> list[str]:
    """A heading and the table, then each reason of its grey cells once."""
    lines = [f"## {table.title}", "", table.note, ""]
    if not table.rows:
        return [*lines, table.empty, ""]
    lines.append("| " + " | ".join(column.label for column in table.columns) + " |")
    lines.append("|" + "---|" * len(table.columns))
    lines += ["| " + " | ".join(map(markdown_entry, row)) + " |" for row in table.rows]
    why = dict.fromkeys("; ".join(entry.reasons) for row in table.rows for entry in row if entry.grey and entry.reasons)
    return [*lines, "", *(f"- unstable or absent: {' '.join(reason.split())}" for reason in why), ""]


def render_markdown(card: Scorecard) -> str:
    """The page as Markdown."""
    lines = [f"# {page_headline(card)}", "", f"Machine {card.machine_key}, {card.date[:16].replace('T', ' ')} UTC.", ""]
    lines += [f"- Parity: {parity_words(card)[0]}", f"- Experiments: {experiment_words(card)}"]
    lines += [f"- Zoo: {zoo_words(card)[0]}"] if card.zoo else []
    lines += [f"- Note: {note}" for note in card.notes] + [""]
    for model in card.models:
        lines += [f"# {model.label}: {headline(model)}", ""]
        lines += [f"- {line}" for line in (*findings(model), sizes_words(model), aa_words(model))]
        lines += [f"- Note: {note}" for note in all_notes(model)]
        lines += [
            "",
            f"Axes: {axes_words()}. Margins: {eps_words(model)}.",
            f"Memory and KV bytes at {model.profile.context} tokens. KL({REFERENCE.name} || recipe).",
            *inherited(model),
            "",
        ]
    for table in tables(card):
        lines += markdown_table(table)
    for run in card.runs:
        lines += [f"Run {run.uid}, commit {run.code}:", "", "```", run.command, "```", ""]
    return "\n".join(lines)


def csv_entry(table: Table, at: int, entry: Entry) -> list[object]:
    """What an entry fills: its value, and the ends of its interval where its column may have one."""
    value = "" if entry.value is None else entry.value
    if not table.columns[at].interval:
        return [value]
    return [value, *("" if end is None else end for end in (entry.low, entry.high))]


def render_csv(table: Table) -> str:
    """One line a row. Grey cells keep their value, and `unstable` says which and why."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names: list[str] = []
    for column in table.columns:
        names += [column.key, f"{column.key}_low", f"{column.key}_high"] if column.interval else [column.key]
    writer.writerow([*names, "unstable"])
    for row in table.rows:
        values = [value for at, entry in enumerate(row) for value in csv_entry(table, at, entry)]
        grey = [
            f"{column.key}: {'; '.join(entry.reasons)}"
            for column, entry in zip(table.columns, row, strict=True)
            if entry.grey and entry.reasons
        ]
        writer.writerow([*values, " | ".join(grey)])
    return out.getvalue()


def cell_document(cell: Cell) -> dict[str, Any]:
    e = cell.estimate
    known = {"value": None, "low": None, "high": None, "n": 0} if e is None else asdict(e)
    return known | {"state": cell.state, "reasons": list(cell.reasons)}


def row_document(row: Row) -> dict[str, Any]:
    """One recipe as JSON."""
    if row.why_not:
        return {"recipe": row.name, "not_run": row.why_not}
    return {
        "recipe": row.name,
        "on_frontier": row.on_frontier,
        "p_frontier": row.p_frontier,
        "dominated_by": list(row.dominated_by),
        "off_frontier": row.off_frontier,
        "decode_percent_of_limit": row.decode_percent,
        "prefill_percent_of_limit": row.prefill_percent,
        "kl_same_bits_as": row.same_bits_as or None,
        **{name: cell_document(cell) for name, cell in row.cells.items()},
    }


def model_document(card: ModelCard) -> dict[str, Any]:
    """One model as JSON."""
    return {
        "model": card.model,
        "timing_model": card.timing_model,
        "headline": headline(card),
        "profile": card.profile.name,
        "context_tokens": card.profile.context,
        "unit": card.unit,
        "units": card.units,
        "runs": [run.uid for run in card.runs],
        "rows": [row_document(row) for row in card.rows],
        "ceilings": card.ceilings.as_dict() if card.ceilings else None,
        "hypervolume": {k: list(v) for k, v in card.frontier.hypervolume.items()} if card.frontier else None,
        "no_frontier": card.no_frontier or None,
        "notes": list(all_notes(card)),
    }


def document(card: Scorecard) -> dict[str, Any]:
    """The scorecard as JSON, its samples apart."""
    words, ok = parity_words(card)
    return {
        "machine": card.machine_key,
        "headline": page_headline(card),
        "models": [model_document(model) for model in card.models],
        "parity": {"ok": ok, "words": words, "suites": [asdict(suite) for suite in card.suites]},
        "experiments": [asdict(each) | {"open": each.open} for each in card.experiments],
        "scores": [asdict(score) for score in card.scores],
        "zoo": [asdict(model) for model in card.zoo],
        "notes": list(card.notes),
    }


def render_json(card: Scorecard) -> str:
    """Everything, with every sample as it was taken."""
    samples = {run.uid: [asdict(sample) for sample in run.samples] for run in card.runs}
    return json.dumps(document(card) | {"samples": samples}, indent=1, allow_nan=False, default=dict) + "\n"
