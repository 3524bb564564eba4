"""`frontier bench`: one speed of the engine over another stack's, measured in the same run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lab.commands import bench_batch, bench_device, bench_kv, bench_workload, example
from lab.console import Output, progress_callback, wide_console
from lab.flags import add_tier_flags, tier_kv

if TYPE_CHECKING:
    from lab.graph_bench import ModelResult

HELP = "decode, prefill, batches, bare graph or KV scheme speed against mlx-lm and optiq, interleaved, with interval"
EXAMPLE = "frontier bench graph --models llama --launches 8"
DEFAULT_MODEL = "smollm2-135m-instruct-fp32"
SEED = 7
DECODE_TOKENS = 33


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Tasks of `frontier bench`."""
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for task in ("decode", "prefill"):
        one = tasks.add_parser(
            task,
            help=f"{task} speed of a model through the whole engine, with percent of the limit",
            epilog=example(f"frontier bench {task} --against mlx-lm --rounds 8"),
        )
        one.add_argument("--model", default=DEFAULT_MODEL, help="built-in name, model folder or hub id")
        one.add_argument(
            "--against", choices=("mlx-lm", "optiq", "engine"), default="mlx-lm", help="engine: an A/A run"
        )
        one.add_argument("--kv", help="KV scheme of both sides: native (default), kv8, kv4:g32, ...")
        add_tier_flags(one, "--kv")
        one.add_argument("--rounds", type=int, default=4, metavar="N", help="quads of four samples (default: 4)")
        one.add_argument("--prompt-tokens", type=int, default=128, metavar="N")
        if task == "decode":
            one.add_argument(
                "--max-tokens", type=int, default=DECODE_TOKENS, metavar="N", help="tokens a sample (default: 33)"
            )
    graph = tasks.add_parser(
        "graph",
        help="the forwards alone, of several architectures, on random models of real shape",
        epilog=example("frontier bench graph --models llama --launches 8"),
    )
    graph.add_argument("--models", metavar="A,B", help="default: all of lab/graph_models.py")
    graph.add_argument("--size", choices=("tiny", "small"), default="small")
    graph.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    graph.add_argument("--against", choices=("mlx-lm", "engine"), default="mlx-lm", help="engine: an A/A run")
    graph.add_argument("--machine", default="shared", metavar="CLASS", help="quiet or shared: the limits that hold")
    graph.add_argument(
        "--launches", type=int, default=8, metavar="N", help="of two quads, in new processes (default: 8)"
    )
    kv = tasks.add_parser(
        "kv",
        help="KV schemes behind a context: decode speed and conversion time",
        epilog=example("frontier bench kv --models llama --contexts 8192 --schemes native,kv8"),
    )
    bench_kv.add_arguments(kv)
    batch = tasks.add_parser(
        "batch",
        help="rows beside each other, and arrivals in a busy batch",
        epilog=example("frontier bench batch --models llama"),
    )
    bench_batch.add_arguments(batch)
    workload = tasks.add_parser(
        "workload",
        help="a workload by name: chat, long prompts, fan-out, ragged rows, closed and open loop",
        epilog=example("frontier bench workload short-chat --launches 2", "frontier bench workload ragged"),
    )
    bench_workload.add_arguments(workload)
    device = tasks.add_parser(
        "device",
        help="models of real shape drawn on a GPU, solo and in rows, over as many calls as it takes",
        epilog=example("frontier bench device --minutes 10", "frontier bench device --report --out FOLDER"),
    )
    bench_device.add_arguments(device)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 whatever a ratio is; the tasks with a criterion end with 1 when a row does not meet it or
    did not run. Another timing run on this machine is refused, with its pid."""
    from lab.lock import hold_timing

    out = Output(as_json=args.json)
    if (args.task == "batch" and args.bits) or (args.task == "device" and (args.plan or args.report)):  # no time
        return TASKS[args.task](args, out)
    CHECKS[args.task](args)
    with hold_timing(f"frontier bench {args.task}"):
        return TASKS[args.task](args, out)


def run_graph(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when a row reads "not met", or "not run": what was asked for must run. "undecided" counts for
    nothing."""
    from engine import machine
    from lab.graph_bench import DECODE_STEPS, PREFILL_TOKENS, Limits, run_model
    from lab.graph_models import CONFIGS, build, prompt
    from lab.judge import document
    from oracles.client import Worker
    from oracles.contract import StackConfig

    limits = Limits.of(args.machine)
    models = args.models.split(",") if args.models else list(CONFIGS)
    folders = build(models, args.size, args.dtype)
    results: list[ModelResult] = []
    out.line(
        f"forwards alone, {args.dtype}, BLAS {args.blas}: prefill {PREFILL_TOKENS}, decode {DECODE_STEPS} behind it; "
        f"met: lower 95 % bound >= {limits.bound:.2f}, half-width <= {100 * limits.half_width:.0f} % ({limits.machine})"
    )
    with progress_callback() as bar:
        for done, model in enumerate(models):
            arms = [StackConfig(stack=s, model=str(folders[model]), blas=args.blas) for s in (args.against, "engine")]
            result = run_model(
                model,
                (arms[0], arms[1]),
                prompt(args.size, PREFILL_TOKENS),
                args.launches,
                limits,
                Worker,
                lambda what, done=done: bar("models", done, len(models)),  # type: ignore[misc]
            )
            results.append(result)
            for row in result.rows:
                out.line(f"{result.model} {row.line()}")
    print_graph(out, results, args.against)
    rows = [row for result in results for row in result.rows]
    verdicts = [row.verdict for row in rows] + [result.memory_verdict for result in results]
    out.document(
        {
            "task": "graph",
            "against": args.against,
            "size": args.size,
            "dtype": args.dtype,
            "machine": machine().key,
            "limits": document(limits),
            "counts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
            "models": [document(result) for result in results],
        },
        always=True,
    )
    return bench_kv.exit_code(verdicts)


def print_graph(out: Output, results: Sequence[ModelResult], against: str) -> None:
    """One line a model and task, and one for its memory."""
    from rich.table import Table

    from lab.metrics import show

    table = Table(title=f"engine over {against}: the graph alone", box=None, pad_edge=False)
    for column in ("model", "task", "ratio", "95 % interval", "engine", against, "verdict", "why"):
        table.add_column(column, no_wrap=column != "why")
    for result in results:
        for row in result.rows:
            span = "–" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"
            speeds = [show(f"{row.task}_tok_s", value) for value in (row.candidate, row.base)]
            ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
            table.add_row(result.model, row.task, ratio, span, *speeds, row.verdict, row.why)
        if result.memory is not None:
            peaks = (result.memory.candidate, result.memory.base)
            share = f"{peaks[0] / peaks[1]:.3f}"
            shown = [show("peak_bytes", peak) for peak in peaks]
            table.add_row(
                result.model, "peak", share, "counted", *shown, result.memory_verdict, "not above the other's"
            )
    wide_console(out).print(table)


def run_task(args: argparse.Namespace, out: Output) -> int:
    """Decode or prefill through the whole engine. Exit code 0 whatever the ratio is."""
    from engine import load_tokenizer, parse_kv, resolve_model
    from evals.corpus import sequences
    from lab import ceilings
    from lab.bench import PREFILL_DECODE_TOKENS, run_quads, summarise, words
    from lab.bench import TASKS as METRIC_OF
    from lab.metrics import show, show_interval
    from oracles.client import Worker
    from oracles.contract import StackConfig, TimeProbe
    from oracles.live import require_scheme

    kv = str(parse_kv(str(tier_kv(args, "--kv", out, "native"))))
    with progress_callback() as bar:
        folder = Path(resolve_model(args.model, progress=bar))
    limits = ceilings.measure(args.blas)
    artifact = ceilings.read_artifact(folder)
    out.line(ceilings.describe(limits))
    ids = tuple(sequences(load_tokenizer(folder), 1, args.prompt_tokens)[0])
    tokens = args.max_tokens if args.task == "decode" else PREFILL_DECODE_TOKENS
    names = {"A": "engine", "B": args.against}
    with (
        Worker(StackConfig(stack="engine", model=str(folder), kv=kv, blas=args.blas)) as ours,
        Worker(StackConfig(stack=args.against, model=str(folder), kv=kv, blas=args.blas)) as theirs,
        progress_callback() as bar,
    ):
        arms = {"A": (names["A"], kv, ours), "B": (names["B"], kv, theirs)}
        probe = TimeProbe(token_ids=ids, max_tokens=tokens)
        samples = run_quads(
            arms, probe, args.rounds, SEED, require_scheme, lambda _text, done, total: bar("samples", done, total)
        )
    metric = METRIC_OF[args.task]
    result = summarise(samples, metric)
    floor = ceilings.Floor.of(artifact, max(s.sample.kv_bytes or 0 for s in samples), len(ids), limits)
    percent = floor.decode_percent if args.task == "decode" else floor.prefill_percent
    bound = floor.decode_bound if args.task == "decode" else floor.prefill_bound
    for name, estimate in ((names["A"], result.a), (names["B"], result.b)):
        span = show_interval(metric, estimate.low, estimate.high)
        share = f"{percent(estimate.value):.0f} % of limit ({bound})"
        out.line(f"{name}: {show(metric, estimate.value)} tok/s, {span}, {share}")
    out.line(words(result, names["A"], names["B"]))
    out.document(
        {
            "task": args.task,
            "metric": metric,
            "model": args.model,
            "kv": kv,
            "against": args.against,
            "ratio": asdict(result.ratio),
            "engine": asdict(result.a) | {"percent_of_limit": percent(result.a.value)},
            "other": asdict(result.b) | {"percent_of_limit": percent(result.b.value)},
            "prompt_tokens": len(ids),
            "max_tokens": tokens,
            "ceilings": limits.as_dict(),
            "samples": [asdict(s) for s in samples],
        },
        always=True,
    )
    return 0


def check_graph(args: argparse.Namespace) -> None:
    """Refuse models, a class and a number of launches that cannot be. Raises `InvalidValue`, `UnknownField`."""
    from engine import errors
    from lab.graph_bench import Limits
    from lab.graph_models import CONFIGS

    models = args.models.split(",") if args.models else ()
    for model in models:
        if model not in CONFIGS:
            raise errors.UnknownField("--models", model, CONFIGS)
    bench_kv.each_once({"--models": models})
    if args.launches < 1:
        raise errors.InvalidValue("--launches", args.launches, "an integer >= 1")
    Limits.of(args.machine)


def check_task(args: argparse.Namespace) -> None:
    """Refuse sizes that measure nothing, and a model and KV scheme that can be none, before anything is loaded."""
    from engine import errors, parse_kv, require_model

    require_model(args.model)
    if args.kv is not None:
        parse_kv(args.kv)
    for flag, value, least in (
        ("--rounds", args.rounds, 1),
        ("--prompt-tokens", args.prompt_tokens, 2),
        *([("--max-tokens", args.max_tokens, 2)] if args.task == "decode" else []),
    ):
        if value < least:
            raise errors.InvalidValue(flag, value, f"an integer >= {least}")


TASKS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "decode": run_task,
    "prefill": run_task,
    "graph": run_graph,
    "kv": bench_kv.run,
    "batch": bench_batch.run,
    "workload": bench_workload.run,
    "device": bench_device.run,
}
# What is refused before the machine is held: one that waits for it should not learn of a mistyped flag then.
CHECKS: dict[str, Callable[[argparse.Namespace], object]] = {
    "decode": check_task,
    "prefill": check_task,
    "graph": check_graph,
    "kv": bench_kv.read,
    "batch": bench_batch.read,
    "workload": bench_workload.check,
    "device": bench_device.turns_of,
}
