"""The command `python -m oracles.arch`: parity of tiny architectures, a line a cell, and the recorded results.

`python -m oracles.arch 'gemma3*' --bisect` while a family is written; `--all --full --record` for the results file.
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


def results_document(results: Sequence[ArchResult]) -> dict[str, Any]:
    """What is recorded: per module and recipe, how many cells are equal, which were not run and why, which differ."""
    modules: dict[str, Any] = {}
    for result in results:
        module = modules.setdefault(
            result.module or result.recipe, {"equal": 0, "not_run": 0, "faulty": 0, "recipes": {}}
        )
        entry = module["recipes"].setdefault(result.recipe, {"equal": 0, "not_run": {}, "differs": {}})
        if result.status == EQUAL:
            module["equal"] += 1
            entry["equal"] += 1
        elif result.status == NOT_RUN:
            module["not_run"] += 1
            entry["not_run"].setdefault(result.why, []).append(str(result.planned))
        else:
            module["faulty"] += 1
            entry["differs"][str(result.planned)] = f"{result.status}: {result.why}"
    return {
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "machine": machine().key,
        "commit": source_commit(),
        "modules": dict(sorted(modules.items())),
    }


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
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.name}; needs --all --full")
    asked = parser.parse_args(arguments)
    if not asked.recipes and not asked.all:
        parser.error("name a recipe, or give --all")
    if asked.record and not (asked.all and asked.full):
        parser.error("--record writes the whole results: it needs --all --full")
    try:
        return _report(asked)
    except errors.FrontierError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _report(asked: argparse.Namespace) -> int:
    selected = chosen(asked.recipes, asked.all)
    results = []
    ours = run(selected, full=asked.full, mutate=asked.full or asked.mutate, bisect=asked.bisect, keep=not asked.all)
    for result in ours:
        results.append(result)
        if not asked.json and (result.bad or not asked.bad):
            print(result.line(), flush=True)
    counts = Counter(result.status for result in results)
    if asked.json:
        print(json.dumps([result.as_dict() for result in results], indent=1))
    else:
        print(", ".join(f"{counts[status]} {status}" for status in (EQUAL, NOT_RUN, DIFFERS, FAILED)), flush=True)
    if asked.record:
        write_whole(RESULTS, (json.dumps(results_document(results), indent=1) + "\n").encode())
    return int(any(result.bad for result in results))


if __name__ == "__main__":
    sys.exit(main())
