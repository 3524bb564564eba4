"""`frontier trace`: a recorded arrival schedule, replayed on the scheduler, and its timeline."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from lab.console import Output, progress_callback, size, wide_console
from lab.flags import add_model_flags, check_file, engine_options
from lab.prefix_words import prefix_line

HELP = "replay a recorded arrival schedule turn by turn, and draw who ran when"
EXAMPLE = "frontier trace requests.jsonl --batch 4 --out timeline.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier trace`."""
    parser.add_argument(
        "schedule", type=Path, help='a request a line: {"turn": 0, "prompt": "...", "max_tokens": 8, "cancel": 5, ...}'
    )
    parser.add_argument("--batch", "--decode-concurrency", type=int, default=8, metavar="N", help="rows at once")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to draw the timeline (.svg, .png, .pdf)")
    add_model_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a request failed, else 0."""
    from rich.table import Table

    from engine import Generation, load
    from lab.trace import draw, read_schedule, replay

    out = Output(as_json=args.json)
    if args.out is not None:
        check_file("--out", args.out, (".svg", ".png", ".pdf"))
    arrivals = read_schedule(args.schedule)
    with progress_callback() as progress:
        engine = load(args.model, drive="manual", batch=args.batch, progress=progress, **engine_options(args, out))
    with engine:
        done, compiled, prefixes = replay(engine, arrivals), engine.compiled, engine.prefix_status()
    table = Table(title=f"{len(done.moments)} turns, at most {args.batch} rows", box=None, pad_edge=False)
    for column in ("request", "prompt", "arrives", "begins", "first step", "ends", "tokens", "outcome"):
        table.add_column(column, justify="left" if column == "outcome" else "right")
    rows = []
    for line, (arrival, outcome) in enumerate(zip(arrivals, done.outcomes, strict=True)):
        begins = next((m.turn for m in done.moments if line in m.admitted), None)
        first = next((m.turn for m in done.moments if line in m.decoded), None)
        ends = next((m.turn for m in done.moments if line in m.ended), None)
        good = isinstance(outcome, Generation)
        row = {
            "request": line,
            "prompt": outcome.usage.prompt_tokens if isinstance(outcome, Generation) else None,
            "arrives": arrival.turn,
            "begins": begins,
            "first step": first,
            "ends": ends,
            "tokens": len(outcome.tokens) if isinstance(outcome, Generation) else 0,
            "outcome": outcome.finish_reason if isinstance(outcome, Generation) else str(outcome),
        }
        rows.append(row | {"ok": good})
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    wide_console(out).print(table)
    out.line(f"copied by joins and leaves: {size(sum(moment.copied_bytes for moment in done.moments))}")
    if prefixes is not None:
        out.line(prefix_line(prefixes))
    if compiled is not None:
        steps = f"{compiled.steps} steps over {compiled.geometries} traces, {compiled.plain} steps without"
        cut = f", {compiled.unordered} since this BLAS cuts their sums in parts" if compiled.unordered else ""
        out.line(f"compiled: {steps}{cut}")
    if args.out is not None:
        draw(done, args.out)
        out.line(f"timeline: {args.out}")
    moments = [vars(moment) for moment in done.moments]
    counts = None if compiled is None else vars(compiled)
    kept = None if prefixes is None else asdict(prefixes) | {"hit_rate": prefixes.hit_rate}
    out.document({"requests": rows, "turns": moments, "batch": args.batch, "compiled": counts, "prefix_cache": kept})
    return 0 if all(row["ok"] for row in rows) else 1
