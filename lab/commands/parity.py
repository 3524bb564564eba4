"""`frontier parity`: the engine against the running oracles, cell by cell, bit by bit."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import errors
from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from oracles.parity import Cell, CellResult

HELP = "run the engine and an oracle on the same probes now and compare every value"
EXAMPLE = "frontier parity --model smollm2-135m-instruct --quick"
SUITES = ("tiny", "kv", "batch", "device", "model", "all")
DEFAULT_MODEL = "smollm2-135m-instruct"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier parity`."""
    parser.add_argument("--model", help="model folder, built-in name or hub id; implies --suite model")
    parser.add_argument(
        "--suite",
        choices=SUITES,
        help="tiny seeded models, KV schemes and batches over tiny models, few shapes of every kind of graph for a GPU "
        "(device), the model, or all (default: tiny)",
    )
    parser.add_argument("--part", metavar="I/N", help="with --suite device: the I-th of N shares, to run beside others")
    parser.add_argument("--quick", action="store_true", help="a small part of the suite")
    parser.add_argument("--bisect", action="store_true", help="where a cell differs, find the first layer that does")
    parser.add_argument("--faults", action="store_true", help="show where the oracles themselves are wrong, live")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when no cell differs or failed, else 1."""
    out = Output(as_json=args.json)
    if args.faults:
        if args.model or args.suite or args.quick or args.bisect or args.part:
            raise errors.InvalidValue("--faults", "given with other flags", "alone: its probes are fixed")
        return show_faults(out)
    if args.part and args.suite != "device":
        raise errors.InvalidValue("--part", args.part, "only with --suite device")
    if args.model and args.suite in ("tiny", "kv", "batch", "device"):
        raise errors.InvalidValue("--suite", args.suite, "model or all together with --model")
    from lab.store import Store
    from oracles.batch_suite import batch_cells
    from oracles.device_suite import device_cells
    from oracles.kv_suite import kv_cells
    from oracles.matrix import model_cells, tiny_cells
    from oracles.parity import BAD, run_cells

    suite = args.suite or ("model" if args.model else "tiny")
    named = {suite} if suite != "all" else {"tiny", "kv", "batch", "model"}  # which hold all that device has, on a CPU
    Store.open().close()  # a database that cannot take the results is told of before minutes are spent on them
    started = time.monotonic()
    make: dict[str, Callable[..., list[Cell]]] = {
        "tiny": tiny_cells,
        "kv": kv_cells,
        "batch": batch_cells,
        "device": partial(device_cells, part=part_of(args.part)),
        "model": partial(model_cells, args.model or DEFAULT_MODEL),
    }
    with progress_callback() as progress:
        progress("preparing models", 0, None)
        parts = {name: cells_of(quick=args.quick) for name, cells_of in make.items() if name in named}
        cells = [cell for part in parts.values() for cell in part]
        progress("preparing models", 1, 1)
        results = []
        for result in run_cells(cells, blas=args.blas, bisect=args.bisect):
            results.append(result)
            progress("parity cells", len(results), len(cells))
    counts = Counter(result.status for result in results)
    print_table(out, [result.as_dict() for result in results])
    seconds = time.monotonic() - started
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    out.line(f"{len(results)} cells: {summary}; BLAS {args.blas}; {seconds:.0f} s")
    ok = not any(counts[status] for status in BAD)
    keep(results, {name: len(part) for name, part in parts.items()}, args)
    rows = [result.as_dict() for result in results]
    out.document({"suite": suite, "blas": args.blas, "ok": ok, "counts": dict(counts), "cells": rows})
    return 0 if ok else 1


def part_of(text: str | None) -> tuple[int, int]:
    """(which, of how many) of I/N; (1, 1) without. Errors: `InvalidValue`."""
    if text is None:
        return 1, 1
    which, slash, count = text.partition("/")
    if not (slash and which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise errors.InvalidValue("--part", text, "I/N with 1 <= I <= N")
    return int(which), int(count)


def keep(results: Sequence[CellResult], sizes: Mapping[str, int], args: argparse.Namespace) -> None:
    """Store what each suite said in the lab's database. sizes: the number of cells of each suite, in their order."""
    from lab.fingerprint import take
    from lab.scorecard.suites import record_suite
    from lab.store import Store

    print_, begin = take(), 0
    with Store.open() as store:
        for name, size in sizes.items():
            model = f" --model {args.model or DEFAULT_MODEL}" if name == "model" else f" --suite {name}"
            share = f" --part {args.part}" if args.part else ""
            command = f"frontier parity{model}{share}{' --quick' if args.quick else ''} --blas {args.blas}"
            part = results[begin : begin + size]
            record_suite(store, print_, name, command, args.blas, part, quick=args.quick)
            begin += size


def print_table(out: Output, rows: list[dict[str, Any]]) -> None:
    """One line a cell; what has no verdict, and what differs, is explained once below."""
    from rich.table import Table

    table = Table(title="engine against oracle", box=None, pad_edge=False)
    for column in ("model", "dtype", "kv", "chunk", "probe", "prompt+steps", "oracle", "result"):
        table.add_column(column, no_wrap=True)
    colours = {"equal": "green", "differs": "bold red", "failed": "bold red"}
    notes: dict[str, int] = {}
    for row in rows:
        why = describe(row)
        note = f" ({notes.setdefault(why, len(notes) + 1)})" if why else ""
        table.add_row(
            row["model"],
            row["dtype"],
            f"mixed:{Path(row['kv']).name}" if row["kv"].startswith("mixed:") else row["kv"],
            str(row["chunk"]),
            row["kind"],
            f"{row['prompt']}+{row['steps']}",
            row["reference"],
            f"[{colours.get(row['status'], 'yellow')}]{row['status']}[/]{note}",
        )
    console = wide_console(out)
    console.print(table)
    for why, number in notes.items():
        console.print(f"({number}) {why}", soft_wrap=True)


def describe(row: dict[str, Any]) -> str:
    """Where a cell differs, or why it has no verdict; empty for an equal one."""
    from rich.markup import escape

    found, layer = row["difference"], row["bisect"]
    if found is None:
        return escape(" ".join(row["why"].split()))
    size = "" if found["max_abs_diff"] is None else f", max |diff| {float(found['max_abs_diff']):.3g}"
    where = "" if found["position"] is None else f" at {found['position']}"
    text = f"{found['tensor']}{where}{size} ({found['why']})"
    if layer is not None:
        text += f"; first in {layer['tensor']}" + ("" if layer["position"] is None else f" at {layer['position']}")
    return escape(text)


def show_faults(out: Output) -> int:
    """Run every probe of the fault register; exit code 1 when one no longer shows its fault."""
    from oracles.faults import FAULTS, as_row, load_fault, probe_fault

    rows = []
    with progress_callback() as progress:
        for done, name in enumerate(FAULTS):
            progress("fault probes", done, len(FAULTS))
            fault, shown = load_fault(name), probe_fault(name)
            rows.append(as_row(name, shown))
            out.line(f"{name} ({fault.oracle}): {'live' if shown.live else 'GONE'}")
            out.line(f"  oracle: {shown.evidence}")
            out.line(f"  engine: {fault.ours}")
        progress("fault probes", len(FAULTS), len(FAULTS))
    gone = [row["name"] for row in rows if not row["live"]]
    out.document({"ok": not gone, "faults": rows, "gone": gone})
    return 1 if gone else 0
