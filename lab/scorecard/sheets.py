"""The tables of the scorecard. HTML, Markdown and CSV print these and nothing else: one set of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.metrics import METRICS, metric, show, show_interval
from lab.scorecard.card import Cell, Experiment, ModelCard, Point, Row, Score, Scorecard, Suite, ZooModel
from lab.scorecard.words import decides
from lab.zoo.markdown import feat

Value = float | int | str | bool | None

# The axes of the frontier first.
METRIC_COLUMNS = (
    "decode_tok_s",
    "peak_bytes",
    "artifact_bytes",
    "kl_nats",
    "kv_bytes",
    "prefill_tok_s",
    "ttft_ms",
    "perplexity",
    "bpw",
)
PERCENT_OF = {"decode_tok_s": "decode_percent", "prefill_tok_s": "prefill_percent"}


@dataclass(frozen=True)
class Column:
    """`key`: of the CSV; interval: whether its entries may have one; words: whether it holds text that wraps."""

    key: str
    label: str
    better: str = ""
    interval: bool = False
    words: bool = False


@dataclass(frozen=True)
class Entry:
    """One cell of a table. text: as printed; value: as kept, None where there is none; under: lines below it;
    link: the anchor of its run; reasons: why it is grey, or missing."""

    text: str
    value: Value
    low: float | None = None
    high: float | None = None
    under: tuple[str, ...] = ()
    link: str = ""
    grey: bool = False
    reasons: tuple[str, ...] = ()
    alarm: bool = False


@dataclass(frozen=True)
class Table:
    """`name`: of its CSV file and anchors; empty: what is said in place of no rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""
    empty: str = "Nothing is stored yet."


def anchor(*parts: str) -> str:
    """An id that is a word: the parts with every other run of characters as a dash."""
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") or "x" for part in parts)


def recipe_anchor(card: ModelCard, recipe: str) -> str:
    return anchor("recipe", card.label, recipe)


def run_anchor(uid: str) -> str:
    return anchor("run", uid)


def said(text: str, *, link: str = "", words: str = "", alarm: bool = False) -> Entry:
    """An entry of text."""
    return Entry(text or "–", text or None, link=link if text else "", under=(words,) if words else (), alarm=alarm)


def measured(name: str, cell: Cell, link: str, more: Sequence[str] = ()) -> Entry:
    """An entry of a number: its interval under it, grey with reasons where it is not stable."""
    e = cell.estimate
    if e is None:
        return Entry("–", None, reasons=cell.reasons, grey=True)
    counted = metric(name).counted
    under = [] if counted else [show_interval(name, e.low, e.high)]
    return Entry(
        show(name, e.value),
        e.value,
        e.low,
        e.high,
        (*under, *more),
        link,
        grey=cell.state != "stable",
        reasons=cell.reasons,
    )


def head(name: str) -> Column:
    """The column of a metric: its label with the unit, and which way is better."""
    row = metric(name)
    plain = row.unit and row.unit not in ("bytes", "bits")
    label = f"{row.label}, {row.unit}" if plain else row.label
    better = {"higher": "more is better", "lower": "less is better", "none": ""}[row.better]
    return Column(name, label, better, interval=not row.counted)


def standing(card: ModelCard, row: Row) -> Entry:
    """Where a recipe stands. On a shared machine, in a quick run and on a grey speed the word is only screened."""
    if row.why_not:
        return Entry(f"not run: {row.why_not}", "not run")
    if row.on_frontier is None:
        return Entry("not placed", "not placed", under=(row.off_frontier or card.no_frontier,))
    decode = row.cell("decode_tok_s")
    word = "on" if row.on_frontier else "dominated"
    screened = not decides(card, row)
    by = (f"by {', '.join(row.dominated_by[:2])}",) if row.dominated_by else ()
    return Entry(
        f"screened: {word}" if screened else word,
        word,
        under=by,
        link=recipe_anchor(card, row.name),
        grey=decode.state != "stable",
        reasons=decode.reasons,
    )


def recipes_table(card: ModelCard) -> Table:
    """One row a recipe."""
    columns = (
        Column("recipe", "recipe"),
        Column("frontier", "frontier", words=True),
        Column("p_frontier", metric("p_frontier").label, "more is better"),
        *(head(name) for name in METRIC_COLUMNS),
    )
    rows = []
    for row in card.rows:
        link = recipe_anchor(card, row.name)
        p = row.p_frontier
        decode = row.cell("decode_tok_s")
        unsure = decode.state != "stable" and p is not None
        entries = [
            Entry(row.name, row.name, link="" if row.why_not else link),
            standing(card, row),
            Entry(show("p_frontier", p), p, link="" if p is None else link, grey=unsure, reasons=decode.reasons),
        ]
        for name in METRIC_COLUMNS:
            share = row.__dict__[PERCENT_OF[name]] if name in PERCENT_OF else None
            more = () if share is None else (f"{share:.0f} % of limit",)
            cell = Cell.absent() if row.why_not else row.cell(name)
            entries.append(measured(name, cell, link, more))
        rows.append(tuple(entries))
    note = "Under each value its 95 % interval, over "
    note += f"{card.units} launches" if card.unit == "launch" else f"{card.units} rounds of one launch"
    note += "; KL and perplexity by sequence. Counted values repeat and carry none. Grey cells are unstable."
    return Table(anchor("recipes", card.label), f"{card.label}: every recipe", columns, tuple(rows), note)


def history_table(card: ModelCard) -> Table:
    """The default recipe over the states of the source, oldest first."""
    columns = (
        Column("code", "commit"),
        Column("day", "day"),
        Column("profile", "profile"),
        Column("runs", "runs"),
        Column("decode_ratio", "decode over mlx-lm", "more is better", interval=True),
        head("decode_tok_s"),
        head("peak_bytes"),
        head("kl_nats"),
    )
    rows = tuple(_history_row(point) for point in card.history)
    note = "engine native beside the reference, with the same model and sizes. Other commits were other times, too: "
    note += "the ratio is the column to compare."
    return Table(anchor("history", card.label), f"{card.label}: the default over commits", columns, rows, note)


def ratio_entry(cell: Cell, link: str) -> Entry:
    """A ratio with its interval."""
    e = cell.estimate
    if e is None:
        return Entry("–", None, reasons=cell.reasons, grey=True)
    under = "no interval (n < 2)" if e.low is None or e.high is None else f"{e.low:.2f} to {e.high:.2f}"
    grey = cell.state != "stable"
    return Entry(f"{e.value:.3f}", e.value, e.low, e.high, (under,), link, grey=grey, reasons=cell.reasons)


def _history_row(point: Point) -> tuple[Entry, ...]:
    link = run_anchor(point.runs[-1].uid)
    profile = point.runs[-1].profile
    return (
        said(point.code, link=link),
        said(point.day),
        said(profile.name if profile else ""),
        Entry(str(len(point.runs)), len(point.runs), link=link),
        ratio_entry(point.ratio, link),
        measured("decode_tok_s", point.decode, link),
        measured("peak_bytes", point.peak, link),
        measured("kl_nats", point.kl, link),
    )


def volume_table(card: ModelCard) -> Table:
    """The joint hypervolume of each stack."""
    columns = (Column("stack", "stack"), Column("hypervolume", "hypervolume", "more is better", interval=True))
    rows = []
    for stack, (value, low, high) in (card.frontier.hypervolume if card.frontier else {}).items():
        under = "no interval" if low is None or high is None else f"{low:.3f} to {high:.3f}"
        link = run_anchor(card.newest.uid)
        rows.append((said(stack), Entry(f"{value:.3f}", value, low, high, (under,), link)))
    note = "The share of a fixed box around the reference that a stack's recipes dominate together; the interval is a "
    note += f"bootstrap of {card.unit}s and sequences."
    return Table(
        anchor("volume", card.label), f"{card.label}: hypervolume", columns, tuple(rows), note, card.no_frontier or "–"
    )


def parity_table(suites: Sequence[Suite]) -> Table:
    """One row a suite."""
    columns = (
        Column("suite", "suite"),
        Column("equal", "cells equal", "more is better"),
        Column("not_run", "not run", "less is better"),
        Column("faulty", "faulty", "less is better"),
        Column("at", "when"),
        Column("code", "commit"),
        Column("machine", "machine key"),
        Column("command", "command", words=True),
    )
    rows = []
    for suite in suites:
        link = anchor("parity", suite.name)
        counts = [
            Entry(
                "–" if count is None else f"{count:,}",
                count,
                link=link if count is not None else "",
                alarm=name == "faulty" and bool(count),
            )
            for name, count in (("equal", suite.equal), ("not_run", suite.not_run), ("faulty", suite.faulty))
        ]
        when = suite.at[:16].replace("T", " ") or "not run on this kind of machine"
        when = f"taken in {when}" if suite.taken_in else when
        about = Entry(suite.name, suite.name, under=(suite.about,))
        rows.append((about, *counts, said(when), said(suite.code), said(suite.machine_key), said(suite.command)))
    note = "A cell is equal where every value is, with no tolerance. Not run: the oracle cannot, or none has it."
    return Table("parity", "Parity", columns, tuple(rows), note)


def experiments_table(experiments: Sequence[Experiment]) -> Table:
    """One row an experiment, open ones first."""
    columns = (
        Column("experiment", "experiment"),
        Column("state", "state"),
        Column("class", "class"),
        Column("primary", "primary"),
        Column("verdict", "verdict here", words=True),
        Column("row", "row of the table"),
        Column("as_of", "as of"),
        Column("expires", "expires"),
        Column("evidence", "evidence"),
        Column("elsewhere", "on other machines", words=True),
    )
    rows = []
    for e in experiments:
        link = anchor("session", e.session) if e.session else ""
        verdict = e.verdict or ("no decision on this machine" if e.open else "")
        elsewhere = "; ".join(f"{key}: {what}" for key, what in sorted(e.elsewhere.items()))
        grey = e.verdict.startswith(("undecided", "screened")) or not e.verdict
        rows.append(
            (
                Entry(e.name, e.name, link=anchor("experiment", e.name)),
                said(e.state),
                said(e.quality_class),
                said(metric(e.primary).label if e.primary in METRICS else e.primary),
                Entry(verdict or "–", e.verdict or None, link=link, grey=grey),
                said(e.row, link=link),
                said(e.as_of),
                said(e.expires_on),
                said(e.session, link=link),
                said(elsewhere),
            )
        )
    note = "Row: of the decision table, first match wins; its reasons and numbers are at the link."
    return Table("experiments", "Experiments", columns, tuple(rows), note)


def scores_table(scores: Sequence[Score]) -> Table:
    """One row a task of a label."""
    columns = (
        Column("label", "model and configuration"),
        Column("task", "task"),
        Column("judged", "items"),
        Column("score", "score, %", "more is better", interval=True),
        Column("run", "run"),
    )
    rows = tuple(_score_row(score) for score in scores)
    return Table("scores", "Scores of tasks", columns, rows, "Wilson intervals of 95 %, by item.")


def _score_row(score: Score) -> tuple[Entry, ...]:
    link = anchor("eval", score.run)
    reasons = ("at floor: too near to guessing",) if score.floor else ()
    if score.judged < score.items:
        reasons = (*reasons, f"incomplete: {score.judged} of {score.items} items judged")
    low, high = ((None if end is None else 100 * end) for end in (score.low, score.high))
    value = None if score.score is None else 100 * score.score
    under = "no interval" if low is None or high is None else f"{low:.1f} to {high:.1f}"
    return (
        said(score.label),
        said(score.task),
        Entry(str(score.judged), score.judged),
        Entry("–" if value is None else f"{value:.1f}", value, low, high, (under,), link, bool(reasons), reasons),
        said(score.run, link=link),
    )


def zoo_table(zoo: Sequence[ZooModel]) -> Table:
    """One row a model of the zoo."""
    skills = list(dict.fromkeys(skill for model in zoo for skill in model.measured.get("skills", {})))
    columns = (
        Column("model", "model"),
        Column("parameters", "parameters"),
        Column("bytes", "bytes", "less is better"),
        Column("perplexity", "perplexity", "less is better"),
        Column("bits_per_byte", "bits per byte", "less is better"),
        Column("ngram_bits_per_byte", "of the n-gram", "less is better"),
        *(Column(skill, f"{skill}, %", "more is better") for skill in skills),
        Column("feat", "other", words=True),
        Column("below", "below the bar", words=True),
        Column("untrue", "claims untrue", "less is better"),
        Column("size", "measured"),
        Column("at", "when"),
        Column("code", "commit"),
        Column("machine", "machine key"),
        Column("command", "command", words=True),
    )
    note = "Trained here, so that KL, perplexity and scores mean something. The n-gram is of order 3, by byte, over "
    note += "the same training text. Quick: on a part of the text and of the questions, with bits per byte of its own."
    return Table("zoo", "Zoo of trained models", columns, tuple(_zoo_row(model, skills) for model in zoo), note)


def _zoo_row(model: ZooModel, skills: Sequence[str]) -> tuple[Entry, ...]:
    held = model.measured
    shares = held.get("skills", {})
    count, bits, perplexity = held.get("parameters"), held.get("bits_per_byte"), held.get("perplexity")
    percent = [100 * shares[skill] if skill in shares else None for skill in skills]
    return (
        Entry(model.name, model.name, under=(model.about,)),
        Entry("–" if count is None else f"{count:,}", count),
        Entry(f"{held['bytes']:,}", held["bytes"]),
        Entry("–" if perplexity is None else f"{perplexity:.2f}", perplexity),
        Entry("–" if bits is None else f"{bits:.3f}", bits),
        Entry("–" if bits is None else f"{model.baseline:.3f}", None if bits is None else model.baseline),
        *(Entry("–" if value is None else f"{value:.0f}", value) for value in percent),
        said(feat(held)),
        said(", ".join(held["below"])),
        Entry(str(len(model.untrue)), len(model.untrue), under=model.untrue, alarm=bool(model.untrue)),
        said(model.size),
        said(model.at[:16].replace("T", " ")),
        said(model.code),
        said(model.machine_key),
        said(model.command),
    )


def tables(card: Scorecard) -> list[Table]:
    """Every table, in the order of the page."""
    found = [make(each) for each in card.models for make in (recipes_table, volume_table, history_table)]
    found += [parity_table(card.suites), experiments_table(card.experiments)]
    found += [scores_table(card.scores)] if card.scores else []
    return [*found, zoo_table(card.zoo)] if card.zoo else found
