"""The page: complete, self-contained, whole or not there, and the same numbers in every file."""

from __future__ import annotations

import csv
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scorecard_fakes import scorecard

from lab import report
from lab.figures import INKS
from lab.scorecard import headline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write_report(scorecard(), tmp_path_factory.mktemp("reports")).parent


def test_every_file_is_there_under_the_machine_key(folder: Path) -> None:
    assert folder.name == "linux-x86_64-cpu-openblas0.3.21-zen"
    names = {p.name for p in folder.iterdir()}
    pages = {f"scorecard.{kind}" for kind in ("html", "md", "csv", "json")}
    assert names == pages | {"frontier.svg", "ratios.svg", "quality.svg"}


def test_the_page_loads_nothing_from_elsewhere(folder: Path) -> None:
    page = (folder / "scorecard.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page)
    assert not re.search(r"@import|url\((?!#)", page)
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


class Balance(HTMLParser):
    """Collects ids, and checks that tags close in order."""

    VOID = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_its_ids_are_unique(folder: Path) -> None:
    parser = Balance()
    parser.feed((folder / "scorecard.html").read_text())
    assert not parser.open
    assert len(parser.ids) == len(set(parser.ids))


def test_figures_take_their_colours_from_the_page(folder: Path) -> None:
    for name in ("frontier", "ratios", "quality"):
        svg = (folder / f"{name}.svg").read_text()
        for placeholder in INKS:
            assert placeholder not in svg
        assert "var(--stack-engine, #0b6bb0)" in svg
        assert "DejaVu" not in svg
        assert not re.search(r"(fill|stroke): #(000000|ffffff)", svg)


def test_the_page_says_all_that_it_must(folder: Path) -> None:
    page = html.unescape((folder / "scorecard.html").read_text())
    card = scorecard()
    for text in (
        headline(card).replace("-", "‑"),
        card.provenance.command,
        card.provenance.commit,
        card.provenance.date,
        "mlx-optiq 0.7.7",
        "not run: optiq: NotImplementedError: no 4-bit here",
        "undecided: quick profile",
        "quick profile: 8 quads or fewer",
        "row 8",
        "Parity: equal",
        "% of limit",
        card.notes[0],
        "takes over the numbers of mlx-lm kv8",
        "Some CPU",
    ):
        assert text in page, text


def test_foreign_text_is_escaped() -> None:
    from dataclasses import replace

    card = scorecard()
    rows = tuple(replace(r, why_not="<b>x</b> | y") if r.why_not else r for r in card.rows)
    card = replace(card, rows=rows)
    assert "<b>x</b>" not in report.render_html(card, [])
    line = next(x for x in report.render_markdown(card).splitlines() if x.startswith("| optiq kv4"))
    assert line.count("|") == len(report.COLUMNS) + 3


def test_csv_markdown_and_json_hold_the_same_recipes(folder: Path) -> None:
    rows = list(csv.DictReader((folder / "scorecard.csv").read_text().splitlines()))
    document = json.loads((folder / "scorecard.json").read_text())
    assert [r["recipe"] for r in rows] == [r["recipe"] for r in document["rows"]]
    assert len(rows) == 9
    engine = rows[0]
    assert float(engine["decode_tok_s_low"]) < float(engine["decode_tok_s"]) < float(engine["decode_tok_s_high"])
    assert engine["kv_bytes_low"] == ""
    assert rows[-1]["not_run"].startswith("optiq:")
    assert len(document["samples"]) == 24
    markdown = (folder / "scorecard.md").read_text()
    assert markdown.count("\n| ") == 10


def test_a_failed_write_leaves_the_old_page_and_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scorecard.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(report.os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        report.write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["scorecard.html"]
