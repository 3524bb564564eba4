"""The task `kv` of `frontier bench`: its flags, its table, its document."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.kv_bench import Case, CaseResult

METRIC = {"decode": "decode_tok_s", "convert": "convert_ms"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier bench kv`."""
    parser.add_argument("--models", metavar="A,B", help="of lab/graph_models.py (default: llama,gemma3_text)")
    parser.add_argument("--contexts", metavar="N,N", help="tokens in the cache (default: 256,2048,8192)")
    parser.add_argument("--schemes", metavar="KV,KV", help='KV schemes; "mixed": 8 and 4 bits in turn (default: seven)')
    parser.add_argument("--size", choices=("tiny", "small"), default="small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--machine", default="shared", metavar="CLASS", help="quiet or shared: the limits that hold")
    parser.add_argument(
        "--launches", type=int, default=8, metavar="N", help="of two quads, in new processes (default: 8)"
    )


def numbers(flag: str, text: str) -> list[int]:
    """The integers of a list with commas; int() would take 1_0 for 10."""
    from engine import errors

    parts = text.split(",")
    if not all(re.fullmatch(r"-?[0-9]+", part) for part in parts):
        raise errors.InvalidValue(flag, text, "integers >= 1, separated by commas")
    return [int(part) for part in parts]


def each_once(lists: Mapping[str, Sequence[object]]) -> None:
    """Raise `InvalidValue` for a flag whose list has something twice: it would be measured twice under one name."""
    from engine import errors

    for flag, values in lists.items():
        if len(set(values)) != len(values):
            raise errors.InvalidValue(flag, ",".join(map(str, values)), "each once")


def exit_code(verdicts: Sequence[str]) -> int:
    """1 where something was not met or did not run."""
    return 1 if {"not met", "not run"} & {*verdicts} else 0


def read(args: argparse.Namespace) -> tuple[list[str], list[Case]]:
    """(models, cases) of the flags. Errors: `InvalidValue`, `UnknownField`."""
    from engine import errors
    from lab.graph_bench import Limits
    from lab.kv_bench import CONTEXTS, MODELS, SCHEMES, cases

    models = args.models.split(",") if args.models else list(MODELS)
    contexts = numbers("--contexts", args.contexts) if args.contexts else list(CONTEXTS)
    schemes = args.schemes.split(",") if args.schemes else list(SCHEMES)
    each_once({"--models": models, "--contexts": contexts, "--schemes": schemes})
    if args.launches < 1:
        raise errors.InvalidValue("--launches", args.launches, "an integer >= 1")
    Limits.of(args.machine)
    return models, cases(models, contexts, schemes, args.size)


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when a row reads "not met", or "not run": what was asked for must run. "undecided" and "lab" count
    for nothing."""
    from engine import machine
    from lab.graph_bench import Limits
    from lab.graph_models import build, prompt
    from lab.judge import document
    from lab.kv_bench import DECODE_STEPS, run_case
    from oracles.client import Worker

    limits = Limits.of(args.machine)
    models, asked = read(args)
    folders = build(models, args.size, args.dtype)
    out.line(f"KV schemes behind a context, {args.dtype}, BLAS {args.blas}: {DECODE_STEPS} steps, conversions")
    out.line(
        f"met: lower 95 % bound >= {limits.bound:.2f}, half-width <= {100 * limits.half_width:.0f} % ({limits.machine})"
    )
    results: list[CaseResult] = []
    with progress_callback() as bar:
        for done, case in enumerate(asked):
            result = run_case(
                case,
                case.arms(str(folders[case.model]), args.blas),
                prompt(args.size, case.context),
                args.launches,
                limits,
                Worker,
                lambda what, done=done: bar("cases", done, len(asked)),  # type: ignore[misc]
            )
            results.append(result)
            for row in result.rows:
                out.line(f"{case.model} {case.context} {case.scheme} {row.line()}")
    print_table(out, results)
    verdicts = [row.verdict for result in results for row in result.rows]
    out.document(
        {
            "task": "kv",
            "size": args.size,
            "dtype": args.dtype,
            "machine": machine().key,
            "limits": document(limits),
            "counts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
            "cases": [document(result) for result in results],
        },
        always=True,
    )
    return exit_code(verdicts)


def print_table(out: Output, results: Sequence[CaseResult]) -> None:
    """One line a case and task; speeds in tok/s, conversions in ms. What keeps a row from its bar stands below."""
    from rich.table import Table

    from lab.metrics import show

    table = Table(title="engine over the other: decode tok/s, conversion ms", box=None, pad_edge=False)
    for column in (
        "model",
        "context",
        "scheme",
        "task",
        "ratio",
        "95 % interval",
        "engine",
        "other",
        "",
        "verdict",
    ):
        table.add_column(column, no_wrap=True)
    reasons = []
    for result in results:
        case = result.case
        other = f"{case.against} native" if case.own else case.against
        for row in result.rows:
            span = "–" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"
            speeds = [show(METRIC[row.task], value) for value in (row.candidate, row.base)]
            ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
            cells = (case.model, str(case.context), case.scheme, row.task, ratio, span, *speeds, other)
            table.add_row(*cells, row.verdict)
            if row.verdict not in ("met", "lab"):
                reasons.append(f"{case.model} {case.context} {case.scheme} {row.task}: {row.verdict}, {row.why}")
    wide_console(out).print(table)
    for reason in reasons:
        out.line(reason)
