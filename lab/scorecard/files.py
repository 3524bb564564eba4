"""Writes reports/<machine key>/scorecard.html, its twins and its figures. No file is ever half written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine import write_atomically
from lab.scorecard.card import Scorecard
from lab.scorecard.figures import draw
from lab.scorecard.page import render_html
from lab.scorecard.sheets import tables
from lab.scorecard.twins import render_csv, render_json, render_markdown

PAGE = "scorecard.html"


def file_name(stem: str, suffix: str) -> str:
    """A name that a file system takes: a long one keeps its beginning and its end."""
    return f"{stem if len(stem) <= 120 else f'{stem[:59]}-{stem[-60:]}'}.{suffix}"


def render(card: Scorecard) -> dict[str, bytes]:
    """Every file by name, the page last."""
    drawings = {model.label: draw(model) for model in card.models}
    every = [drawing for held in drawings.values() for drawing in held]
    text = {file_name(table.name, "csv"): render_csv(table) for table in tables(card)}
    text |= {file_name(drawing.name, "svg"): drawing.svg for drawing in every}
    text |= {"scorecard.md": render_markdown(card), "scorecard.json": render_json(card)}
    files: Mapping[str, bytes] = {name: body.encode() for name, body in text.items()}
    pictures = {file_name(drawing.name, "png"): drawing.png for drawing in every}
    return {**files, **pictures, PAGE: render_html(card, drawings).encode()}


def write_report(card: Scorecard, out: Path) -> Path:
    """Render everything first, then write; returns the page's path."""
    folder = out / card.machine_key
    files = render(card)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(folder / name, data, mode=0o644)
    return folder / PAGE
