"""The task `device` of `frontier bench`: its flags, its tables, its files."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.console import Output, wide_console
from lab.flags import check_folder

if TYPE_CHECKING:
    from lab.device_plan import Turn
    from lab.device_report import CellReport, Report

SAMPLES_FILE, PARITY_FILE = "device-samples.jsonl", "device-parity.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier bench device`."""
    parser.add_argument("--models", metavar="A,B", help="tiny, 135m, 0.6b, 8b (default: the last three)")
    parser.add_argument("--packings", metavar="P,P", help="4bit, bf16, fp32, fp32-4bit (default: 4bit,bf16)")
    parser.add_argument("--prompts", metavar="N,N", help="prompt tokens of a row (default: 128,4096)")
    parser.add_argument("--rows", metavar="N,N", help="rows that arrive together (default: 1,8,32)")
    parser.add_argument("--no-levers", action="store_true", help="the engine's defaults alone")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin nothing that would not end by then")
    parser.add_argument("--plan", action="store_true", help="show the turns that are left, and measure nothing")
    parser.add_argument("--report", action="store_true", help="show what the database holds, and measure nothing")
    parser.add_argument("--key", metavar="KEY", help="with --report and --out: of that machine (default: this one)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write device.md, device.json and the samples there")
    parser.add_argument(
        "--take-in",
        type=Path,
        metavar="FILE",
        help=f"first put the runs of a {SAMPLES_FILE}, or the cells of a {PARITY_FILE}, into the database",
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever a ratio is; what was refused or did not fit into the time is listed as not run."""
    from lab.device_ledger import take_in
    from lab.store import Store

    check_flags(args)
    with Store.open() as store:
        if args.take_in:
            new, known = take_in(store, args.take_in)
            out.line(f"{args.take_in.name}: {new} taken in, {known} known already")
        if not args.report:
            measure(args, out, store)
        if not args.plan:
            show(args, out, store)
    return 0


def check_flags(args: argparse.Namespace) -> None:
    """Raise `InvalidValue` for a flag that would go unread."""
    from engine import errors

    if args.minutes is not None and not args.minutes > 0:
        raise errors.InvalidValue("--minutes", args.minutes, "a number > 0")
    if args.take_in is not None and not args.take_in.is_file():
        raise errors.InvalidValue("--take-in", str(args.take_in), "an existing file")
    if args.out is not None:
        check_folder("--out", args.out)
    unread: dict[str, tuple[str, ...]] = {
        "--report": ("models", "packings", "prompts", "rows", "no_levers", "minutes", "plan")
    }
    unread["--plan"] = ("minutes", "key", "out")
    for mode, names in unread.items():
        given = [name for name in names if vars(args)[mode[2:]] and vars(args)[name]]
        if given:
            raise errors.InvalidValue(
                f"--{given[0].replace('_', '-')}", "given", f"absent with {mode}, which reads none"
            )
    if args.key and not args.report:
        raise errors.InvalidValue("--key", args.key, "given with --report only: what is measured is of this machine")


def turns_of(args: argparse.Namespace) -> list[Turn]:
    """The plan of the flags. Errors: `InvalidValue`, `UnknownField`."""
    from lab.commands.bench_kv import each_once, numbers
    from lab.device_models import config_of, form_of
    from lab.device_plan import MODELS, PACKINGS, PROMPTS, ROWS, make_turns

    check_flags(args)
    models = args.models.split(",") if args.models else list(MODELS)
    packings = args.packings.split(",") if args.packings else list(PACKINGS)
    for model in models:
        config_of(model)
    for packing in packings:
        form_of(packing)
    prompts = numbers("--prompts", args.prompts) if args.prompts else PROMPTS
    rows = numbers("--rows", args.rows) if args.rows else ROWS
    each_once({"--models": models, "--packings": packings, "--prompts": prompts, "--rows": rows})
    return make_turns(models, packings, prompts, rows, levers=not args.no_levers)


def measure(args: argparse.Namespace, out: Output, store: Any) -> None:
    """Take what is left of the plan, as far as the time goes."""
    from lab.device_bench import Taking
    from lab.device_ceilings import measure as measure_ceilings
    from lab.device_ceilings import read_counts
    from lab.device_ledger import DeviceRun, Setup, taken
    from lab.device_models import build
    from lab.fingerprint import take
    from oracles.client import Worker

    begin = time.monotonic()
    turns = turns_of(args)
    folders = build(list(dict.fromkeys((turn.group.model, turn.group.packing) for turn in turns)))
    setup = Setup(print=take(), folders=folders, blas=args.blas)
    left, seen = taken(store, setup, turns)
    out.line(f"{len(turns)} turns planned on {setup.print.machine_key}, {len(turns) - len(left)} done")
    if args.plan:
        print_plan(out, left, seen)
        return
    ceilings = measure_ceilings()
    out.line(
        f"ceilings: copy {ceilings.copy_gb_s:,.0f} GB/s, read {ceilings.read_gb_s:,.0f} GB/s, bf16 products "
        f"{ceilings.bf16_tflop_s:,.1f} TFLOP/s"
    )
    models = {" ".join(pair): read_counts(folder) for pair, folder in folders.items()}
    about = {"ceilings": ceilings.__dict__, "models": models, "minutes": args.minutes}
    deadline = None if args.minutes is None else begin + 60 * args.minutes
    with DeviceRun.begin(store, setup, about, "frontier " + " ".join(sys.argv[1:])) as keep:
        taking = Taking(
            folders=folders,
            blas=args.blas,
            start=lambda config: Worker(config, wait=False),
            keep=keep,
            tick=lambda what: out.line(f"{time.monotonic() - begin:6.1f} s  {what}"),
        )
        rest = taking.turns(left, deadline, seen)
    out.line(f"{len(left) - len(rest)} turns taken in {time.monotonic() - begin:.0f} s, {len(rest)} left")


def print_plan(out: Output, turns: Sequence[Turn], seen: dict[str, float]) -> None:
    """One line a turn, with the seconds that it is expected to take."""
    from lab.device_bench import expected_s

    for turn in turns:
        out.line(f"{expected_s(turn, seen):6.0f} s  {turn.name}")


def show(args: argparse.Namespace, out: Output, store: Any) -> None:
    """The tables of a machine, and its files with --out."""
    from engine import machine
    from lab.device_ledger import export, write_export
    from lab.device_parity import export_cells
    from lab.device_report import read_report
    from lab.device_words import markdown
    from lab.judge import document

    report = read_report(store, args.key or machine().key)
    print_tables(out, report)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        cells = export_cells(store, report.machine_key)
        (args.out / "device.md").write_text(markdown(report, cells), encoding="utf-8")
        text = json.dumps(document(report), indent=1) + "\n"
        (args.out / "device.json").write_text(text, encoding="utf-8")
        write_export(args.out / SAMPLES_FILE, export(store, report.machine_key))
        write_export(args.out / PARITY_FILE, cells)
        out.line(f"written: {args.out}/device.md, device.json, {SAMPLES_FILE}, {PARITY_FILE}")
    out.document({"task": "device", **document(report)}, always=True)


def print_tables(out: Output, report: Report) -> None:
    """Measured cells as a table, the others in a line."""
    from rich.table import Table

    from lab.device_words import HOST_COLUMNS, SHORT_COLUMNS, host_rows, not_run, short_row

    measured: list[CellReport] = [cell for cell in report.cells if cell.ratios]
    for columns, rows in (
        (SHORT_COLUMNS, [short_row(cell) for cell in measured]),
        (HOST_COLUMNS, host_rows(report)),
    ):
        table = Table(box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, no_wrap=True)
        for row in rows:
            table.add_row(*row)
        wide_console(out).print(table)
    for line in not_run(report):
        out.line(line)
