"""The task `workload` of `frontier bench`: one named workload, the engine against another stack."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.workload_bench import WorkloadResult

SIZES = ("prompt_tokens", "max_tokens", "rows")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier bench workload`."""
    parser.add_argument("name", help="see frontier lab workloads")
    parser.add_argument("--model", default="smollm2-135m-instruct-fp32", help="built-in name, model folder or hub id")
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="of both sides (default: auto, the checkpoint's)",
    )
    parser.add_argument(
        "--against", choices=("mlx-lm", "engine"), default="mlx-lm", help="engine: an A/A run (default: mlx-lm)"
    )
    parser.add_argument("--launches", type=int, default=4, metavar="N", help="of two quads, in new processes")
    parser.add_argument("--machine", default="shared", metavar="CLASS", help="quiet or shared: the limits that hold")
    for size in SIZES:
        flag = f"--{size.replace('_', '-')}"
        parser.add_argument(flag, type=int, metavar="N", help="in place of the workload's own")


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be measured, before anything is held or loaded. Raises `InvalidValue`, `UnknownField`."""
    from engine import errors, require_model
    from lab.graph_bench import Limits
    from lab.workloads import LEAST_TOKENS, read_workload

    load, _, max_tokens = read_workload(args.name, **{size: vars(args)[size] for size in SIZES})
    if load.kind == "drawn":
        raise errors.InvalidValue("NAME", args.name, "one that is greedy: samplers are compared by frontier lab")
    if max_tokens < LEAST_TOKENS:
        raise errors.InvalidValue("--max-tokens", max_tokens, f"an integer >= {LEAST_TOKENS}")
    if args.launches < 1:
        raise errors.InvalidValue("--launches", args.launches, "an integer >= 1")
    Limits.of(args.machine)
    require_model(args.model)


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever a ratio is; 1 when the other stack cannot run it."""
    from engine import load_tokenizer, machine, resolve_model
    from evals import corpus
    from lab import ceilings
    from lab.graph_bench import Limits
    from lab.judge import document
    from lab.workload_bench import run_workload
    from lab.workloads import read_workload, sizes_words, tokens_of_session
    from oracles.client import Worker
    from oracles.contract import StackConfig

    load, prompt_tokens, max_tokens = read_workload(args.name, **{size: vars(args)[size] for size in SIZES})
    with progress_callback() as bar:
        folder = Path(resolve_model(args.model, progress=bar))
    limits = ceilings.measure(args.blas)
    out.line(ceilings.describe(limits))
    ids = corpus.prompt(load_tokenizer(folder), 0, tokens_of_session(load, prompt_tokens))
    out.line(f"{args.name}: {sizes_words(load, prompt_tokens, max_tokens)}; {args.model}, BLAS {args.blas}")
    base = StackConfig(stack=args.against, model=str(folder), dtype=args.dtype, blas=args.blas)
    engine = StackConfig(stack="engine", model=str(folder), dtype=args.dtype, blas=args.blas)
    total = args.launches * 10 + 1
    with progress_callback() as bar:
        result = run_workload(
            load,
            (base, engine),
            (prompt_tokens, max_tokens),
            tuple(ids),
            args.launches,
            Limits.of(args.machine),
            Worker,
            lambda _what, done: bar("samples", done, total),
        )
    print_table(out, result, args.against)
    floor = ceilings.Floor.of(ceilings.read_artifact(folder), result.kv_bytes, prompt_tokens, limits)
    shares: dict[str, Any] = {}
    if load.kind == "single":
        decode = next((row.candidate for row in result.rows if row.task == "decode"), None)
        shares = {} if decode is None else {"decode_percent_of_limit": floor.decode_percent(decode)}
        if decode is not None:
            percent = shares["decode_percent_of_limit"]
            out.line(f"engine: decode at {percent:.0f} % of the limit ({floor.decode_bound})")
    out.document(
        {
            "task": "workload",
            "workload": load.__dict__ | {"prompt_tokens": prompt_tokens, "max_tokens": max_tokens},
            "model": args.model,
            "against": args.against,
            "machine": machine().key,
            "ceilings": limits.as_dict(),
            **shares,
            "result": document(result),
        },
        always=True,
    )
    return 1 if any(row.verdict == "not run" for row in result.rows) else 0


def print_table(out: Output, result: WorkloadResult, against: str) -> None:
    """One line a metric, then the tails of a load."""
    from rich.table import Table

    from lab.metrics import show

    table = Table(title=f"{result.workload}: engine over {against}", box=None, pad_edge=False)
    for column in ("metric", "ratio", "95 % interval", "engine", against, "why"):
        table.add_column(column, no_wrap=column != "why")
    for row in result.rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
        span = "–" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"
        values = [show(result.metrics[row.task], v) if v is not None else "–" for v in (row.candidate, row.base)]
        table.add_row(row.task, ratio, span, *values, row.why)
    for tail in result.tails:
        table.add_row(tail.name, "–", "–", f"{tail.engine_ms:.1f}", f"{tail.other_ms:.1f}", f"ms, {tail.values} values")
    wide_console(out).print(table)
