"""The page: complete, self-contained, whole or not there, and the same numbers in every file."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scorecard_fakes import FULL, KEY, PROFILE, invented_run, model_of, page_of, scorecard

from lab.ink import INKS
from lab.recipes import RECIPES, RecipeSpec
from lab.scorecard import figures, files
from lab.scorecard.card import Scorecard
from lab.scorecard.page import general, render_html
from lab.scorecard.sheets import Column, Entry, Table, recipes_table, tables
from lab.scorecard.twins import csv_entry, markdown_table, render_csv, render_markdown
from lab.scorecard.words import page_headline


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Scorecard:
    with pytest.MonkeyPatch.context() as patch:  # nothing is declared, so that every decision counts
        patch.setattr("lab.scorecard.experiments.compose_all", lambda: ({}, {}))
        return scorecard(tmp_path_factory.mktemp("db") / "lab.sqlite", (PROFILE, replace(FULL, rounds=3)))


@pytest.fixture(scope="module")
def folder(card: Scorecard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.write_report(card, tmp_path_factory.mktemp("reports")).parent


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "scorecard.html").read_text()


class Seen(HTMLParser):
    """What a page is made of: tags that close in order, ids, links, cells of sortable tables."""

    VOID = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.sorts: list[str] = []
        self.heads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.attributes += list(held.items())
        self.ids += [held["id"]] if held.get("id") else []
        self.links += [held["href"]] if tag == "a" else []
        self.sorts += [held["data-sort"]] if "data-sort" in held else []
        self.heads += [held["aria-sort"]] if "aria-sort" in held else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_file_is_there_under_the_machine_key(folder: Path) -> None:
    assert folder.name == KEY
    names = {p.name for p in folder.iterdir()}
    model = "smollm2-135m-instruct-fp32"
    kinds = ("frontier", "ratios", "quality", "history", "volume")
    figures = {f"{kind}-{model}.{suffix}" for kind in kinds for suffix in ("svg", "png")}
    sheets = {f"{kind}-{model}.csv" for kind in ("recipes", "history", "volume")} | {"parity.csv", "experiments.csv"}
    assert names == {"scorecard.html", "scorecard.md", "scorecard.json"} | figures | sheets


def test_the_page_names_no_address_and_loads_nothing(page: str) -> None:
    """Planted breaks that fail here: a font or script from elsewhere, an image, an SVG with its namespace's address."""
    assert "http" not in page.replace("http-equiv", "")
    assert "//" not in re.sub(r"^\s*//.*$", "", page, flags=re.M)
    assert not re.search(r"@import|url\((?!#)|\bfetch\b|XMLHttpRequest|WebSocket|import\(", page)
    seen = Seen(page)
    assert all(value.startswith("#") for name, value in seen.attributes if name in ("href", "src", "action", "data"))
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_the_page_is_well_formed_its_ids_are_unique_and_every_link_arrives(page: str) -> None:
    """A number's link that leads nowhere fails here."""
    seen = Seen(page)
    assert not seen.open
    assert len(seen.ids) == len(set(seen.ids))
    assert {link.removeprefix("#") for link in seen.links} <= set(seen.ids)


def test_every_number_links_to_what_it_was_made_of(card: Scorecard, page: str) -> None:
    """Each entry with a number has a link, and behind a recipe's are its samples, its run and the command."""
    counts = ("judged",)
    for table in tables(card):
        for row in table.rows:
            for column, entry in zip(table.columns, row, strict=True):
                if isinstance(entry.value, int | float) and column.key not in counts:
                    assert entry.link, (table.name, column.key)
    for model in card.models:
        for run in model.runs:
            assert f'id="run-{run.uid}"' in page
            assert html.escape(run.command) in page
            assert f"git checkout {run.git_sha[:12]}" in page
    part = page[page.index('id="recipe-smollm2-135m-instruct-fp32-engine-kv8"') :]
    part = part[: part.index("</details>")]
    assert part.count("<tr>") == 1 + 3, "a head and the samples of the full run alone"
    assert card.models[0].runs[0].uid in part


def test_tables_can_be_sorted_by_keyboard(card: Scorecard, page: str) -> None:
    """Planted breaks: a head without a button or aria-sort, a cell without its value, 9 sorted after 10."""
    seen = Seen(page)
    columns = sum(len(table.columns) for table in tables(card))
    cells = sum(len(row) for table in tables(card) for row in table.rows)
    assert seen.heads == ["none"] * columns
    assert len(seen.sorts) == cells
    assert page.count('<button type="button">') == columns
    assert 'setAttribute("aria-sort"' in page
    first = recipes_table(card.models[0]).rows[0]
    assert str(first[3].value) in seen.sorts


def test_the_page_says_all_that_it_must(card: Scorecard, page: str) -> None:
    text = html.unescape(page)
    for wanted in (
        page_headline(card).replace("-", "‑"),
        "frontier scorecard --measure quick",
        "0123456789ab",
        "mlx-optiq 0.7.7",
        "not run: optiq: NotImplementedError: no 4-bit here",
        "undecided: quick profile",
        "quick profile: 8 quads or fewer",
        "% of limit",
        "takes over the numbers of mlx-lm kv8",
        "Some CPU",
        "decode (higher is better), peak memory (lower is better), artifact (lower is better), KL (lower is better)",
        "2 cells equal, none faulty, in 1 of 6 suites",
        "frontier parity --suite kv",
        "not run on this kind of machine",
        "1 open, 1 decided",
        "delete: gate",
        "frontier lab run kv8 --profile quick model=m-fp32",
        "A/A, mlx-lm native against itself",
        "P(frontier)",
        "Sensors",
    ):
        assert wanted in text, wanted


def test_grey_cells_point_at_their_reasons(card: Scorecard, page: str) -> None:
    """Planted breaks: a grey cell without a reason, a reason that no cell points at."""
    marks = re.findall(r'<sup><a href="#([^"]+)"', page)
    assert marks
    listed = re.findall(r'<li id="([^"]+-why-\d+)"', page)
    assert set(marks) == set(listed)
    for table in tables(card):
        for row in table.rows:
            assert all(entry.reasons for entry in row if entry.grey and isinstance(entry.value, float))
    assert general("sd 44.6 %, above 12.0 %") == general("sd 12.1 %, above 12.0 %") == "sd above 12.0 %"
    part = page[page.index('id="recipe-smollm2-135m-instruct-fp32-engine-kv8"') :]
    row = card.models[0].row("engine kv8")
    assert row is not None
    assert html.escape("; ".join(row.cell("decode_tok_s").reasons)) in part[: part.index("</details>")]


def test_twins_hold_the_numbers_of_the_page(card: Scorecard, folder: Path, page: str) -> None:
    """One set of tables: each value is in the CSV as it is kept, in Markdown and HTML as it is printed.

    Planted breaks: a twin with numbers of its own, rounding in the CSV, a column left out of one of them.
    """
    markdown, text = (folder / "scorecard.md").read_text(), html.unescape(page)
    for table in tables(card):
        rows = list(csv.DictReader((folder / f"{table.name}.csv").read_text().splitlines()))
        assert len(rows) == len(table.rows)
        for kept, row in zip(rows, table.rows, strict=True):
            for column, entry in zip(table.columns, row, strict=True):
                assert kept[column.key] == ("" if entry.value is None else str(entry.value))
                if column.interval and entry.low is not None:
                    assert float(kept[f"{column.key}_low"]) == entry.low
                if entry.grey and entry.reasons:
                    assert entry.reasons[0] in kept["unstable"]
                assert " ".join(entry.text.split()) in markdown
                assert all(word in text for word in (entry.text, *entry.under))
    document = json.loads((folder / "scorecard.json").read_text())
    (model,) = document["models"]
    by_name = {row[0].value: row for row in recipes_table(card.models[0]).rows}
    for row in model["rows"]:
        if "not_run" not in row:
            assert by_name[row["recipe"]][3].value == row["decode_tok_s"]["value"]
    assert sum(len(samples) for samples in document["samples"].values()) == 24 + 27


def test_one_database_gives_one_page_byte_for_byte(card: Scorecard) -> None:
    model = card.models[0]
    assert model.frontier is not None
    once, again = (figures.svg_of(figures.volume(model, figures.SVG, False)) for _ in range(2))
    assert once == again
    assert render_html(card, {model.label: []}) == render_html(card, {model.label: []})


def test_foreign_text_is_escaped_and_cannot_break_a_table() -> None:
    run = invented_run(RECIPES)
    card = page_of(model_of(replace(run, refused={"optiq kv4": "<b>x</b> | y\nz"})))
    page = render_html(card, {card.models[0].label: []})
    assert "<b>x</b>" not in page
    line = next(x for x in render_markdown(card).splitlines() if x.startswith("| optiq kv4"))
    assert line.count("|") == len(recipes_table(card.models[0]).columns) + 1
    assert next(csv.reader([render_csv(recipes_table(card.models[0])).splitlines()[-1]]))


@pytest.mark.parametrize("count", [pytest.param(1), pytest.param(200, marks=pytest.mark.matrix)])
def test_any_number_of_recipes_with_names_of_any_length(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One recipe, and two hundred of unknown stacks and schemes with names of 150 characters: all are in the tables."""
    if count == 1:  # the figures are made, and only their files take seconds
        monkeypatch.setattr(figures, "svg_of", lambda figure: '<svg viewBox="0 0 1 1"></svg>')
        monkeypatch.setattr(figures, "png_of", lambda figure: b"")
    specs = [RecipeSpec(f"openai:server-{i % 23}-{'x' * 120}", f"scheme-{i}-{'y' * 20}") for i in range(count - 1)]
    card = page_of(model_of(invented_run([RecipeSpec("mlx-lm", "native"), *specs])))
    page = files.write_report(card, tmp_path)
    text = page.read_text()
    assert not Seen(text).open
    assert all(html.escape(spec.name) in text for spec in specs)
    assert len(list(csv.DictReader(next(tmp_path.rglob("recipes-*.csv")).read_text().splitlines()))) == count
    if count > 1:
        assert "The first 30 of 199 recipes; the table has all." in text


def test_a_machine_without_recipes_has_a_page(tmp_path: Path) -> None:
    page = files.write_report(page_of(), tmp_path).read_text()
    assert "No recipe is measured on this machine yet" in page
    assert not Seen(page).open


def test_an_empty_table_says_so_and_an_entry_fills_its_columns() -> None:
    table = Table("t", "T", (Column("a", "A"), Column("b", "B", interval=True)), (), empty="none yet")
    assert "none yet" in markdown_table(table)
    assert csv_entry(table, 1, Entry("1", 1.0, 0.5, None)) == [1.0, 0.5, ""]
    assert csv_entry(table, 0, Entry("–", None)) == [""]


def test_figures_take_their_colours_from_the_page_and_stand_alone_as_files(folder: Path, page: str) -> None:
    for file in folder.glob("*.svg"):
        svg = file.read_text()
        assert svg.startswith("<svg xmlns=")
        for placeholder in INKS:
            assert placeholder not in svg
        assert "var(--stack-0, #003f7d)" in svg
        assert "DejaVu" not in svg
        assert not re.search(r"(fill|stroke): #(000000|ffffff)", svg)
    assert page.count("<svg") == 2 * len(list(folder.glob("*.svg")))
    for file in folder.glob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_failed_write_leaves_the_old_page_and_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scorecard.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("engine.artifacts.cache.os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["scorecard.html"]
