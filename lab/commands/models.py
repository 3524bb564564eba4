"""`frontier models`: built-in models, every module of mlx-lm and who reads it; `explain`: what a folder resolves to."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, size, wide_console

if TYPE_CHECKING:
    from lab.modules import Row

HELP = "built-in models, and mlx-lm's modules with family file and recorded parity; explain PATH: a folder's graph"
EXAMPLE = "frontier models explain ./my-model"
COUNTED = ("equal", "not run", "faulty")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action `explain`, and none."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    explain = actions.add_parser(
        "explain",
        help="the graph of a folder, layer by layer, and what its config.json adds",
        epilog=example("frontier models explain smollm2-135m-instruct"),
    )
    explain.add_argument("model", metavar="PATH", help="model folder, built-in name or hub id; weights are not needed")
    explain.add_argument("--profile", default="auto", help="auto, family or universal: see README (default: auto)")


def folder_bytes(folder: Path) -> int:
    """Bytes of a model folder's files."""
    return sum(file.stat().st_size for file in folder.iterdir())


def builtin_models() -> list[dict[str, Any]]:
    """The built-in models as JSON."""
    from engine import BUILTIN, cached_builtin

    models = []
    for name, entry in BUILTIN.items():
        folder = cached_builtin(name)
        models.append(
            {
                "name": name,
                "about": entry.about,
                "fetched": folder is not None,
                "folder": None if folder is None else str(folder),
                "bytes": None if folder is None else folder_bytes(folder),
                "download_bytes": entry.wheel.archive_bytes,
                "source": entry.wheel.requirement,
            }
        )
    return models


def run(args: argparse.Namespace) -> int:
    """Exit code 0; `explain` has 1 where loading would refuse the folder's config.json."""
    out = Output(as_json=args.json)
    if args.action == "explain":
        from lab.explain import explain

        return explain(args.model, args.profile, out)
    from engine import FAMILIES
    from lab.modules import document, read_results, rows
    from oracles.arch import RESULTS

    models = builtin_models()
    for model in models:
        state = (
            f"here, {size(model['bytes'])}, {model['folder']}"
            if model["fetched"]
            else f"not fetched; the first use fetches {model['source']} ({size(model['download_bytes'])})"
        )
        out.line(f"{model['name']}\n  {model['about']}\n  {state}")
    out.line("other models: a folder with config.json and model*.safetensors, or a hub id (org/name)\n")
    results = read_results(RESULTS)
    table = rows(results)
    doc = document(table, results)
    print_modules(out, table)
    print_totals(out, doc)
    out.document({"models": models, "families": sorted(FAMILIES), **doc})
    return 0


def print_modules(out: Output, table: Sequence[Row]) -> None:
    """One line a module; the notes once, below."""
    from rich.table import Table

    view = Table(title="mlx-lm's modules", box=None, pad_edge=False)
    for column in ("module", "group", "family file", "also", "equal", "not run", "faulty", ""):
        view.add_column(column, no_wrap=column in ("module", "group"), justify="right" if column in COUNTED else "left")
    notes: dict[str, int] = {}
    for row in table:
        note = f"({notes.setdefault(row.note, len(notes) + 1)})" if row.note else ""
        family = "–" if row.family is None else row.family.rsplit("/", 1)[-1]
        counts = ["–" if count is None else str(count) for count in (row.equal, row.not_run, row.faulty)]
        view.add_row(row.module, row.group, family, ", ".join(row.aliases), *counts, note)
    wide_console(out).print(view)
    for text, number in notes.items():
        out.line(f"({number}) {text}")


def print_totals(out: Output, doc: Mapping[str, Any]) -> None:
    """The groups, then everything in one line."""
    sums, where = doc["totals"], doc["recorded_on"]
    out.line("groups: " + "; ".join(f"{key} {about}" for key, about in doc["groups"].items()))
    cells = f"{sums['equal']} equal, {sums['not_run']} not run, {sums['faulty']} faulty"
    on = "nothing recorded" if where is None else f"{cells} cells recorded of {sums['recorded']} modules"
    place = (
        "" if where is None else f" ({where['machine']}, mlx-lm {where['versions']['mlx-lm']}, {where['commit'][:12]})"
    )
    out.line(
        f"{sums['modules']} modules: {sums['built']} with a family file, {sums['not_built']} not built, "
        f"{sums['not_in_oracle']} that mlx-lm itself cannot run here; {on}{place}"
    )
