"""`frontier scorecard`: the page of what was measured. `--measure` measures first, as `make scorecard` does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine import errors
from lab.console import Output, wide_console
from lab.flags import check_folder

if TYPE_CHECKING:
    from lab.scorecard.card import ModelCard

HELP = "the frontier of speed, memory, size and fidelity against mlx-lm and optiq, as a page, from the lab's database"
EXAMPLE = """frontier scorecard
frontier scorecard --measure quick
frontier scorecard --serve --port 8010"""
DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_PORT = 8010


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier scorecard`."""
    parser.add_argument("--machine", metavar="KEY", help="machine key of the page (default: every one)")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="only these (default: all measured)")
    parser.add_argument("--db", help="database (default: FRONTIER_DB, else ./lab.sqlite)")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder of the reports (default: reports)")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "--measure",
        choices=("quick", "full"),
        help="measure first. quick: minutes on two cores, every verdict stays undecided; full: hours",
    )
    measuring.add_argument(
        "--server", action="append", default=[], metavar="URL[#MODEL]", help="time this server too: http://HOST:PORT/v1"
    )
    measuring.add_argument(
        "--class",
        dest="machine_class",
        default="shared",
        choices=("shared", "quiet"),
        help="of the machine (default: shared)",
    )
    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--serve", action="store_true", help="serve page and database, read-only, to this machine alone"
    )
    serving.add_argument("--port", type=int, help=f"of --serve (default: {DEFAULT_PORT}; 0 takes a free one)")


def check(args: argparse.Namespace) -> None:
    """Refuse flags that would mean nothing beside each other, and a folder that cannot be written to. Raises
    `InvalidValue`."""
    check_folder("--out", args.out)
    if args.measure is None and args.server:
        raise errors.InvalidValue("--server", args.server, "given together with --measure")
    if args.measure is None and args.machine_class != "shared":
        raise errors.InvalidValue("--class", args.machine_class, "given together with --measure")
    if args.measure is not None and args.machine is not None:
        raise errors.InvalidValue("--machine", args.machine, "none: --measure is of this machine")
    if args.measure is not None and args.serve:
        raise errors.InvalidValue("--serve", True, "alone, after --measure has ended")
    if args.measure is not None and len(args.models) > 1:
        raise errors.InvalidValue("--models", args.models, "one model together with --measure")
    if args.port is not None and not args.serve:
        raise errors.InvalidValue("--port", args.port, "given together with --serve")
    if args.port is not None and not 0 <= args.port <= 65535:
        raise errors.InvalidValue("--port", args.port, "0..65535")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; 1 where a parity cell of what was just measured is faulty."""
    check(args)
    out = Output(as_json=args.json)
    if args.measure is not None:
        from lab.scorecard.measuring import measure

        return measure(args, out)
    from lab import store
    from lab.scorecard.runs import NothingMeasured

    opened = store.existing(args.db)
    if opened is None:
        raise NothingMeasured(f"no database at {store.place()}; run: frontier scorecard --measure quick")
    with opened:
        if args.serve:
            from lab.scorecard.serve import serve

            return serve(opened, args.machine, args.models, DEFAULT_PORT if args.port is None else args.port, out)
        return write_pages(opened, args, out)


def write_pages(opened: object, args: argparse.Namespace, out: Output) -> int:
    """The page of each machine key that is asked for, from the database alone."""
    from lab.scorecard.files import write_report
    from lab.scorecard.load import keys_to_show, load
    from lab.scorecard.twins import document
    from lab.scorecard.words import page_headline
    from lab.store import Store

    assert isinstance(opened, Store)
    pages = []
    for key in keys_to_show(opened, args.machine, args.models):
        card = load(opened, key, args.models)
        page = write_report(card, args.out)
        for model in card.models:
            print_rows(out, model)
        for note in card.notes:
            out.line(note)
        out.line(page_headline(card))
        out.line(f"scorecard: {page}")
        pages.append({"scorecard": str(page), **document(card)})
    out.document({"pages": pages})
    return 0


def print_rows(out: Output, card: ModelCard) -> None:
    """The recipes as a short table for the terminal; `*` marks what is unstable."""
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    from lab.metrics import show

    table = Table(title=f"{escape(card.label)}, {card.profile.context} tokens", box=SIMPLE, padding=(0, 1))
    for column in ("recipe", "tok/s", "±", "limit", "prefill", "peak MiB", "KV MiB", "ppl", "KL nats", "P"):
        table.add_column(column, justify="left" if column == "recipe" else "right", no_wrap=True)
    for row in card.measured:
        decode = row.cell("decode_tok_s")
        e = decode.estimate
        half = None if e is None or e.low is None or e.high is None else (e.high / e.low) ** 0.5 - 1
        star = "*" if decode.state == "unstable" else ""
        table.add_row(
            escape(row.name),
            show("decode_tok_s", decode.value) + star,
            "–" if half is None else "> 1000 %" if half > 10 else f"{100 * half:.0f} %",
            "–" if row.decode_percent is None else f"{row.decode_percent:.0f} %",
            show("prefill_tok_s", row.cell("prefill_tok_s").value),
            *(mib(row.cell(name).value) for name in ("peak_bytes", "kv_bytes")),
            *(show(name, row.cell(name).value) for name in ("perplexity", "kl_nats")),
            show("p_frontier", row.p_frontier),
        )
    wide_console(out).print(table)
    if any(row.cell("decode_tok_s").state == "unstable" for row in card.measured):
        out.line("* unstable on this machine: the page says why, and no verdict rests on it")
    for row in card.rows:
        if row.why_not:
            out.line(f"not run: {row.name}: {row.why_not}")


def mib(value: float | None) -> str:
    return "–" if value is None else f"{value / 2**20:,.1f}"
