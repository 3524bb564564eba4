"""The command `python -m oracles.arch`: parity of tiny architectures, a line a cell, and the recorded results.

`python -m oracles.arch 'gemma3*' --bisect` while a family is written; `--full --record` writes its results into the
results file, with `--all` the whole file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from engine import errors, machine
from oracles.architectures import ArchResult, ArchRun
from oracles.exclusions import matches
from oracles.parity import DIFFERS, EQUAL, FAILED, NOT_RUN
from oracles.recipe import Recipe, recipes
from oracles.record import source_commit, write_whole

RESULTS = Path(__file__).resolve().parent.parent / "goldens" / "architectures.json"
VERSIONS = ("mlx", "mlx-lm")


def chosen(patterns: Sequence[str], everything: bool) -> dict[str, Recipe]:
    """The recipes that the patterns name; a pattern that names none raises `errors.UnknownField`."""
    known = recipes()
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in known):
            raise errors.UnknownField("recipe", pattern, known)
    return {name: recipe for name, recipe in known.items() if everything or matches(name, patterns)}


@contextmanager
def folder(keep: bool) -> Iterator[Path | None]:
    """Where models go: the folder that is kept between runs (None), or one that is removed."""
    if keep:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="frontier-arch-") as scratch:
        yield Path(scratch)


def run(selected: Mapping[str, Recipe], *, full: bool, mutate: bool, bisect: bool, keep: bool) -> Iterator[ArchResult]:
    """Every cell of the recipes, as it is decided. keep: leave the models where they can be found again."""
    with folder(keep) as root, ArchRun(root=root) as arch:
        for name, recipe in selected.items():
            yield from arch.cells(name, recipe, full=full, bisect=bisect)
            if mutate:
                yield from arch.mutations(name, recipe)
            for made in root.iterdir() if root else ():
                shutil.rmtree(made)


def results_document(results: Sequence[ArchResult], previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is recorded: per module and recipe, how many cells are equal, which were not run and why, which differ.

    previous: a recorded document whose other recipes are kept; it must be of the same versions and machine
    (`errors.InvalidValue`). Each recipe names the commit that it was run at.
    """
    document: dict[str, Any] = {
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "machine": machine().key,
        "commit": source_commit(),
    }
    modules: dict[str, dict[str, Any]] = {}
    for name in ("versions", "machine") if previous else ():
        if previous is not None and previous[name] != document[name]:
            raise errors.InvalidValue(name, document[name], f"{previous[name]}, as recorded; or record --all again")
    for module, entry in (previous or {"modules": {}})["modules"].items():
        modules[module] = dict(entry["recipes"])
    fresh: set[str] = set()
    for result in results:
        entries = modules.setdefault(result.module or result.recipe, {})
        if result.recipe not in fresh:
            fresh.add(result.recipe)
            entries[result.recipe] = {"equal": 0, "not_run": {}, "differs": {}, "commit": document["commit"]}
        _count(entries[result.recipe], result)
    return document | {"modules": {module: _totals(modules[module]) for module in sorted(modules)}}


def _count(entry: dict[str, Any], result: ArchResult) -> None:
    if result.status == EQUAL:
        entry["equal"] += 1
    elif result.status == NOT_RUN:
        entry["not_run"].setdefault(result.why, []).append(str(result.planned))
    else:
        entry["differs"][str(result.planned)] = f"{result.status}: {result.why}"


def _totals(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "equal": sum(entry["equal"] for entry in entries.values()),
        "not_run": sum(len(cells) for entry in entries.values() for cells in entry["not_run"].values()),
        "faulty": sum(len(entry["differs"]) for entry in entries.values()),
        "recipes": {name: entries[name] for name in sorted(entries)},
    }


class Repeats:
    """Prints a line a cell; cells of a recipe that fail for one and the same reason are counted instead."""

    def __init__(self) -> None:
        self._last: ArchResult | None = None
        self._more = 0

    def print(self, result: ArchResult) -> None:
        last = self._last
        if last is not None and result.bad and (result.recipe, result.why) == (last.recipe, last.why):
            self._more += 1
            return
        self.end()
        self._last = result
        print(result.line(), flush=True)

    def end(self) -> None:
        if self._last is not None and self._more:
            print(f"         {self._last.recipe}: and {self._more} more cells in the same words", flush=True)
        self._last, self._more = None, 0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every cell is equal or excused, 1 when one is not, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m oracles.arch", description=__doc__)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="a recipe or a pattern of names ('gemma3*')")
    parser.add_argument("--all", action="store_true", help="every recipe")
    parser.add_argument("--full", action="store_true", help="every form, chunk and packing, and mutations")
    parser.add_argument("--mutate", action="store_true", help="also draw each kind of parameter anew, alone")
    parser.add_argument("--bisect", action="store_true", help="name the first layer that differs")
    parser.add_argument("--bad", action="store_true", help="print only what is not equal")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name}; needs --full")
    asked = parser.parse_args(arguments)
    if bool(asked.recipes) == asked.all:
        parser.error("name recipes, or give --all, and not both")
    if asked.record and not asked.full:
        parser.error("--record is of all cells: it needs --full")
    try:
        return _report(asked)
    except errors.FrontierError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _report(asked: argparse.Namespace) -> int:
    selected = chosen(asked.recipes, asked.all)
    results = []
    ours = run(selected, full=asked.full, mutate=asked.full or asked.mutate, bisect=asked.bisect, keep=not asked.all)
    repeats = Repeats()
    for result in ours:
        results.append(result)
        if not asked.json and (result.bad or not asked.bad):
            repeats.print(result)
    repeats.end()
    counts = Counter(result.status for result in results)
    if asked.json:
        print(json.dumps([result.as_dict() for result in results], indent=1))
    else:
        print(", ".join(f"{counts[status]} {status}" for status in (EQUAL, NOT_RUN, DIFFERS, FAILED)), flush=True)
    if asked.record:
        previous = None if asked.all or not RESULTS.is_file() else json.loads(RESULTS.read_text(encoding="utf-8"))
        write_whole(RESULTS, (json.dumps(results_document(results, previous), indent=1) + "\n").encode())
    return int(any(result.bad for result in results))


if __name__ == "__main__":
    sys.exit(main())
