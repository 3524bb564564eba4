"""The task `batch` of `frontier bench`: its flags, its tables, its document."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands.bench_kv import each_once, exit_code, numbers
from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.batch_bench import Case, CaseResult, Sizes
    from lab.graph_bench import Limits

MODELS = ("llama", "qwen3_next")
LAUNCHES = 8
# The flags that --bits has no use for.
SPEED = (
    *("models", "rows", "kinds", "size", "dtype", "prompt_tokens", "max_tokens", "chunk", "machine", "launches"),
    *("lever", "against", "drive"),
)
DRIVES = {"rows": "manual", "busy": "thread"}
METRIC = {
    "decode": "decode_tok_s",
    "aggregate": "agg_tok_s",
    "TTFT": "ttft_ms",
    "TTFT p95": "itl_ms",  # printed with a decimal: tiny models answer within milliseconds
    "ITL p99": "itl_ms",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier bench batch`."""
    parser.add_argument("--models", metavar="A,B", help="of lab/graph_models.py, or built-in names (default: two)")
    parser.add_argument("--rows", metavar="N,N", help="rows of a batch (default: 1,2,4,8)")
    parser.add_argument("--kinds", metavar="K,K", help="rows: speed; busy: arrivals (default: both)")
    parser.add_argument(
        "--size",
        choices=("tiny", "small"),
        help="of the models of lab/graph_models.py, and of them only (default: tiny)",
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="of the same models (default: float32)"
    )
    parser.add_argument("--prompt-tokens", type=int, metavar="N", help="of the longest row (default: 64)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="that each row makes (default: 48)")
    parser.add_argument("--chunk", type=int, metavar="N", help="prompt tokens a forward (default: 2048; busy: 64)")
    parser.add_argument("--machine", metavar="CLASS", help="quiet or shared: the limits that hold (default: shared)")
    parser.add_argument("--launches", type=int, metavar="N", help="of two quads, in new processes (default: 8)")
    parser.add_argument(
        "--lever",
        action="append",
        metavar="NAME=VALUE",
        help="of the engine's configuration, for instance compile=step; may be given several times",
    )
    parser.add_argument(
        "--drive",
        choices=("manual", "thread"),
        help="of the engine: manual, by who reads the tokens, as mlx-lm's loops are (default of rows), or its own "
        "thread, with a reader for each row (default of busy)",
    )
    parser.add_argument("--against", choices=("mlx-lm", "engine"), help="engine: without the levers (default: mlx-lm)")
    parser.add_argument(
        "--bits", action="store_true", help="no speed: where a row's bits depend on the batch, under each BLAS; alone"
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags, read and checked. levers: of the engine, against: the other stack."""

    limits: Limits
    sizes: Sizes
    kinds: tuple[str, ...]
    cases: tuple[Case, ...]
    models: tuple[str, ...]
    launches: int
    levers: tuple[tuple[str, str], ...]
    against: str


def read(args: argparse.Namespace) -> Request:
    """Errors: `InvalidValue`, `UnknownField`, of whatever flag cannot be measured."""
    from engine import errors
    from lab.batch_bench import ROWS, Sizes, cases
    from lab.graph_bench import Limits

    given = {"prompt": args.prompt_tokens, "decode": args.max_tokens, "chunk": args.chunk}
    kinds = tuple((args.kinds or "rows,busy").split(","))
    for kind in kinds:
        if kind not in ("rows", "busy"):
            raise errors.UnknownField("--kinds", kind, ("rows", "busy"))
    models = args.models.split(",") if args.models else list(MODELS)
    rows = numbers("--rows", args.rows) if args.rows else ROWS
    each_once({"--rows": rows, "--kinds": kinds, "--models": models})
    launches = LAUNCHES if args.launches is None else args.launches
    if launches < 1:
        raise errors.InvalidValue("--launches", launches, "an integer >= 1")
    levers, against = levers_of(args.lever or ()), args.against or "mlx-lm"
    if against == "engine":
        check_differs(levers)
    check_shapes(models, args.size, args.dtype)
    return Request(
        limits=Limits.of(args.machine or "shared"),
        sizes=Sizes(**{name: value for name, value in given.items() if value is not None}),
        kinds=kinds,
        cases=tuple(case for case in cases(models, rows) if case.kind in kinds),
        models=tuple(models),
        launches=launches,
        levers=levers,
        against=against,
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when a row reads "not met", or "not run": what was asked for must run. "undecided" and "lab" count
    for nothing."""
    from engine import errors, machine

    if args.bits:
        beside = [name for name in SPEED if vars(args)[name] is not None]
        if beside:
            raise errors.InvalidValue(
                "--bits", f"given with --{beside[0].replace('_', '-')}", "alone: its sizes are fixed"
            )
        return run_bits(out)
    from lab.batch_bench import probe_of, run_case, vocabulary
    from lab.judge import document
    from oracles.client import Worker
    from oracles.contract import StackConfig

    asked = read(args)
    sizes, kinds, levers, against = asked.sizes, asked.kinds, asked.levers, asked.against
    folders = find(asked.models, args.size, args.dtype)
    engine = " ".join(("engine", *(f"{name}={value}" for name, value in levers)))
    out.line(
        f"batches, {engine} against {against}, BLAS {args.blas}: prompts of {sizes.prompt} tokens and less, "
        f"{sizes.decode} tokens a row; "
        + "; ".join(f"{k}: chunks of {sizes.chunk_of(k)}, drive {args.drive or DRIVES[k]}" for k in kinds)
    )
    results: list[CaseResult] = []
    with progress_callback() as bar:
        for done, case in enumerate(asked.cases):
            folder = folders[case.model]
            base = StackConfig(stack=against, model=str(folder), chunk=sizes.chunk_of(case.kind), blas=args.blas)
            drive = args.drive or DRIVES[case.kind]
            base = replace(base, drive=drive) if against == "engine" else base
            arms = base, replace(base, stack="engine", levers=levers, drive=drive)
            result = run_case(
                case,
                arms,
                probe_of(case, sizes, vocabulary(folder)),
                asked.launches,
                asked.limits,
                Worker,
                lambda what, done=done: bar("cases", done, len(asked.cases)),  # type: ignore[misc]
            )
            results.append(result)
            for row in result.rows:
                out.line(f"{case.model}, {case.rows} rows, {row.line()}")
    print_table(out, results, against)
    verdicts = [row.verdict for result in results for row in result.rows]
    verdicts += [result.memory_verdict for result in results]
    out.document(
        {
            "task": "batch",
            "against": against,
            "levers": dict(levers),
            "drive": {kind: args.drive or DRIVES[kind] for kind in kinds},
            "machine": machine().key,
            "limits": document(asked.limits),
            "sizes": document(sizes),
            "counts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
            "cases": [document(result) for result in results],
        },
        always=True,
    )
    return exit_code(verdicts)


def levers_of(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE as pairs. Errors: `UnknownField` for a name, `InvalidValue` for a value, a form or a name twice."""
    from engine import LEVERS, EngineConfig, errors

    words = [n for n, v in LEVERS.items() if v.where == "engine" and isinstance(v.default, str)]
    pairs = [(name, value) for name, _, value in (each.partition("=") for each in given)]
    for text, (name, value) in zip(given, pairs, strict=True):
        if name not in LEVERS:
            raise errors.UnknownField("--lever", name, tuple(LEVERS))
        if name in ("kv", "dtype") or name not in words or [n for n, _ in pairs].count(name) > 1:
            raise errors.InvalidValue(
                "--lever", text, "each lever once, one whose value is a word, and not kv or dtype"
            )
        EngineConfig.from_dict({"model": "", name: value})
    return tuple(pairs)


def check_differs(levers: Sequence[tuple[str, str]]) -> None:
    """Raise `InvalidValue` where the engine without these levers is the engine with them."""
    from engine import LEVERS, errors, machine

    same = [f"{name}={value}" for name, value in levers if value == LEVERS[name].default_on(machine().key)]
    if same or not levers:
        given = " ".join(same) or "none"
        raise errors.InvalidValue(
            "--lever", given, "with --against engine, values that this machine has not by default"
        )


def check_shapes(models: Sequence[str], size: str | None, dtype: str | None) -> None:
    """Raise `InvalidValue` for a size or dtype beside a model that has its own, `ModelNotFound` for a name of none."""
    from engine import errors, require_model
    from lab.graph_models import CONFIGS

    own = [model for model in models if model not in CONFIGS]
    for model in own:
        require_model(model)
    for flag, value in (("--size", size), ("--dtype", dtype)):
        if own and value is not None:
            raise errors.InvalidValue(flag, value, f"only with models of {', '.join(CONFIGS)}: {own[0]} has its own")


def find(models: Sequence[str], size: str | None, dtype: str | None) -> dict[str, Path]:
    """The folder of each: built where lab/graph_models.py has its shape, else found by its name. Errors: those of
    `engine.resolve_model`."""
    from engine import resolve_model
    from lab.graph_models import CONFIGS, build

    folders = build([model for model in models if model in CONFIGS], size or "tiny", dtype or "float32")
    with progress_callback() as bar:
        return folders | {m: Path(resolve_model(m, progress=bar)) for m in models if m not in CONFIGS}


def print_table(out: Output, results: Sequence[CaseResult], against: str) -> None:
    """One line a case and task, and one for its memory."""
    from rich.table import Table

    from lab.metrics import show

    table = Table(title=f"engine over {against}: tok/s of all rows together, ms", box=None, pad_edge=False)
    sides = "engine", "without" if against == "engine" else against
    for column in ("model", "rows", "task", "ratio", "95 % interval", *sides, "verdict", "why"):
        table.add_column(column, no_wrap=column != "why")
    for result in results:
        case = result.case
        rows = str(case.rows) if case.kind == "rows" else f"{case.rows - 1}+1"
        for row in result.rows:
            span = "–" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"
            shown = [show(METRIC[row.task], v) if v is not None else "–" for v in (row.candidate, row.base)]
            ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
            table.add_row(case.model, rows, row.task, ratio, span, *shown, row.verdict, row.why)
        if result.memory is not None:
            peaks = (result.memory.candidate, result.memory.base)
            shown = [show("peak_bytes", peak) for peak in peaks]
            share = f"{peaks[0] / peaks[1]:.3f}"
            table.add_row(
                case.model, rows, "peak", share, "counted", *shown, result.memory_verdict, "not above the other's"
            )
    wide_console(out).print(table)


def run_bits(out: Output) -> int:
    """The table of what a row's bits depend on; exit code 0 whatever it says."""
    from oracles.row_bits import BLAS, SIZES, measure_in_child

    found: dict[str, Any] = {blas: measure_in_child(blas) for blas in BLAS}
    for blas, answer in found.items():
        print_bits(out, blas, answer, SIZES)
    out.document({"task": "bits", "blas": found}, always=True)
    return 0


def print_bits(out: Output, blas: str, answer: Mapping[str, Any], sizes: Sequence[int]) -> None:
    """One line an operation: equal, or how many of how many rows differ, and by how much at most."""
    from rich.table import Table

    if "refused" in answer:
        out.line(f"BLAS {blas}: not run: {answer['refused']}")
        return
    title = f"a row in a batch of B against the row alone: BLAS {blas}, {answer['machine']}"
    table = Table(title=title, box=None, pad_edge=False)
    for column in ("operation", "dtype", *(f"B={b}" for b in sizes)):
        table.add_column(column, no_wrap=True)
    for line in answer["rows"]:
        cells = [
            "equal" if not cell["unequal"] else f"{cell['unequal']}/{cell['rows']}, {cell['max']:.1e}"
            for cell in line["cells"]
        ]
        table.add_row(line["operation"], line["dtype"], *cells)
    wide_console(out).print(table)
