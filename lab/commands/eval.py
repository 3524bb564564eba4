"""`frontier eval`: task scores of a model, item by item, and two runs compared by item."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lab.console import Output, progress_callback, wide_console
from lab.sizes import parse_size

if TYPE_CHECKING:
    from evals.compare import Comparison
    from evals.run import Backend, ItemResult, RunInfo
    from evals.task import Task
    from lab.store import Store

HELP = "run frozen tasks on a model, resumable and item by item; compare: two runs paired by item; list, show"
EXAMPLE = """frontier eval --tier smoke --label base
frontier eval --tier smoke --kv kv8 --label kv8
frontier eval --tier nightly --dry-run
frontier eval --tasks arc_easy,gsm8k --items 20 --backend openai:http://localhost:8080/v1 --model NAME
frontier eval compare base kv8
frontier eval show kv8 --item gsm8k-7
frontier eval show kv8 --clusters
frontier eval list"""
ACTIONS = ("run", "compare", "list", "show")
# What a run is without flags. The model's packed form is the same values and takes ten times as long on a CPU.
RUN = {
    "model": "smollm2-135m-instruct-fp32",
    "tier": "smoke",
    "kv": "native",
    "dtype": "auto",
    "batch": 8,
    "backend": "engine",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier eval`."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="run", help="default: run")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="compare: reference and candidate; show: one run")
    parser.add_argument("--model", help=f"run: name, folder or hub id (default: {RUN['model']})")
    parser.add_argument("--tasks", metavar="T[,T...]", help="run: default: all of the tier")
    parser.add_argument("--tier", choices=("smoke", "nightly", "full"), help="run: how many items of each task")
    parser.add_argument("--items", type=int, metavar="N", help="run: items of each task, instead of the tier's")
    parser.add_argument("--kv", help="run: KV scheme (default: native)")
    parser.add_argument("--dtype", help="run: auto (the checkpoint's own), float32, bfloat16 or float16")
    parser.add_argument("--chunk", type=int, metavar="N", help="run: prompt tokens a forward (default: 2048)")
    parser.add_argument(
        "--prefix-cache",
        metavar="SIZE",
        help="run: keep so much of what prompts begin with, to ends of chunks",
    )
    parser.add_argument(
        "--batch", type=int, metavar="N", help=f"run: items asked, and kept, at once (default: {RUN['batch']})"
    )
    parser.add_argument(
        "--backend",
        metavar="B",
        help="run: engine, mlx-lm, mlx-lm-evaluate (the code of mlx_lm.evaluate), or openai:URL (up to /v1)",
    )
    parser.add_argument("--label", help="run: what its tasks are called together (default: model and KV)")
    parser.add_argument(
        "--dry-run", action="store_true", help="run: ask one item of each task, and print how long all take"
    )
    parser.add_argument("--item", metavar="ID", help="show: one item in full")
    parser.add_argument("--clusters", action="store_true", help="show: means of clusters instead of items")
    parser.add_argument("--db", metavar="URL", help="the lab's database (default: FRONTIER_DB, else ./lab.sqlite)")


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a compared task reads "worse"; else 0."""
    from engine import errors
    from lab import store

    wanted = {"run": 0, "list": 0, "show": 1, "compare": 2}[args.action]
    if len(args.runs) != wanted:
        raise errors.InvalidValue(f"frontier eval {args.action}", args.runs, f"{wanted} run(s) behind it")
    settle(args)
    out = Output(as_json=args.json)
    if args.action == "run" and args.dry_run:
        return dry_run(args, out)
    if args.action == "run":
        with store.Store.open(args.db) as opened:
            return run_tasks(args, out, opened)
    found = store.existing(args.db)
    if found is None:
        if args.action != "list":
            raise store.NoDatabase(f"{store.place(args.db)}: nothing to {args.action}")
        out.line(f"no database yet at {store.place(args.db)}: no task was run")
        out.document({"runs": []})
        return 0
    with found:
        return {"compare": compare_runs, "list": list_runs, "show": show_run}[args.action](args, out, found)


def settle(args: argparse.Namespace) -> None:
    """Fill in what was left out of a run. Errors: `InvalidValue` for a flag of another action, and for a number."""
    from engine import errors

    flags = {
        "run": (*RUN, "tasks", "items", "label", "dry_run", "chunk", "prefix_cache"),
        "show": ("item", "clusters"),
        "list": (),
        "compare": (),
    }
    known = {flag for each in flags.values() for flag in each}
    for flag in sorted(known - set(flags[args.action])):
        if vars(args)[flag] not in (None, False):
            raise errors.InvalidValue(f"--{flag.replace('_', '-')}", vars(args)[flag], f"not with {args.action}")
    for flag in ("batch", "items", "chunk"):
        if vars(args)[flag] is not None and vars(args)[flag] < 1:
            raise errors.InvalidValue(f"--{flag}", vars(args)[flag], "an integer >= 1")
    if args.dry_run and (args.label is not None or args.db is not None):
        raise errors.InvalidValue("--dry-run", True, "without --label and --db: nothing is kept")
    for flag, value in RUN.items():
        if vars(args)[flag] is None:
            setattr(args, flag, value)


def chosen(args: argparse.Namespace) -> list[tuple[Task, int | None]]:
    """The tasks, and how many items of each. Errors: `UnknownField` for a task, `InvalidValue` for a number,
    `evals.sources.MissingData` for one whose data was not fetched."""
    from engine import errors
    from evals.tasks import load_task
    from evals.tiers import TIERS

    tier: Mapping[str, int | None] = TIERS[args.tier]
    names = args.tasks.split(",") if args.tasks else list(tier)
    if len(set(names)) != len(names):
        raise errors.InvalidValue("--tasks", args.tasks, "each task once")
    tasks = [load_task(name) for name in names]
    for task in tasks:
        task.items()  # before a model is loaded: data may be missing
    for name in names if args.items is None else ():
        if name not in tier:
            allowed = f"a task of tier {args.tier} ({', '.join(tier)}), or --items N beside it"
            raise errors.InvalidValue("--tasks", name, allowed)
    return [(task, tier[task.name] if args.items is None else args.items) for task in tasks]


def open_backend(args: argparse.Namespace) -> Backend:
    """Errors: `UnknownField` for a backend; those of loading."""
    from engine import errors

    for flag in ("chunk", "prefix_cache") if args.backend != "engine" else ():
        if vars(args)[flag] is not None:
            raise errors.InvalidValue(f"--{flag.replace('_', '-')}", vars(args)[flag], "with the engine alone")
    kind, _, url = args.backend.partition(":")
    if kind == "openai" and url:
        from evals.backend_openai import OpenAIBackend

        if args.kv != "native" or args.dtype != "auto":
            raise errors.InvalidValue("--kv/--dtype", f"{args.kv} {args.dtype}", "the server's own: leave them out")
        return OpenAIBackend(url, args.model, batch=args.batch)
    if args.backend == "mlx-lm":
        from evals.backend_mlx_lm import MlxLmBackend

        return MlxLmBackend(args.model, blas=args.blas, kv=args.kv, dtype=args.dtype)
    if args.backend == "mlx-lm-evaluate":
        from evals.backend_evaluate import EvaluateBackend

        return EvaluateBackend(args.model, blas=args.blas, kv=args.kv, dtype=args.dtype)
    if args.backend != "engine":
        raise errors.UnknownField("--backend", args.backend, ("engine", "mlx-lm", "mlx-lm-evaluate", "openai:URL"))
    from evals.backends import EngineBackend

    with progress_callback() as bar:
        options = {"kv": args.kv, "dtype": args.dtype, **of_engine(args)}
        return EngineBackend(args.model, batch=args.batch, progress=bar, **options)


def of_engine(args: argparse.Namespace) -> dict[str, int]:
    """What the flags that only the engine has ask of `engine.load`."""
    options = {} if args.chunk is None else {"prefill_chunk": args.chunk}
    if args.prefix_cache is not None:
        options["prefix_cache"] = parse_size("--prefix-cache", args.prefix_cache)
    return options


def label_of(args: argparse.Namespace) -> str:
    """What the runs are called together."""
    beside = [] if args.backend == "engine" else [args.backend]
    dtype = [] if args.dtype == "auto" else [args.dtype]
    return args.label or " ".join([args.model, *beside, args.kv, *dtype])


def run_tasks(args: argparse.Namespace, out: Output, store: Store) -> int:
    """Tasks one after the other; what the database has is not asked again."""
    from evals.run import describe, run_task
    from lab.eval_ledger import StoreLedger
    from lab.eval_scores import mean_of, summary

    tasks, label = chosen(args), label_of(args)
    backend = open_backend(args)
    try:
        ledger = StoreLedger(store, label=label, model=args.model)
        infos = [(task, describe(task, backend, count, args.batch)) for task, count in tasks]
        out.line(f"{label}: {sum(info.items for _, info in infos)} items of {len(infos)} tasks, BLAS {args.blas}")
        found: list[tuple[RunInfo, list[ItemResult]]] = []
        with progress_callback() as bar:
            for task, info in infos:
                found.append((info, run_task(task, backend, ledger, info, bar)))
    finally:
        backend.close()
    rows = [summary(info, results) for info, results in found]
    print_scores(out, rows, label)
    out.document({"label": label, "tier": args.tier, "tasks": rows, "mean": mean_of(rows)}, always=True)
    return 0


def print_scores(out: Output, rows: Sequence[Mapping[str, Any]], label: str) -> None:
    """A line a task, and the mean of all with its error; reasons of what was not run below."""
    from rich.table import Table

    from lab.eval_scores import mean_of

    table = Table(title=label, box=None, pad_edge=False)
    for column in ("task", "items", "score", "95 % interval", "cluster error", "chance", "", "run"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        span = "–" if row["low"] is None else f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        score = "–" if row["score"] is None else f"{100 * row['score']:.1f}"
        error = "" if row["cluster_error"] is None else f"{100 * row['cluster_error']:.1f}"
        counts = str(row["items"]) if row["judged"] == row["items"] else f"{row['judged']} of {row['items']}"
        floor = "at floor" if row["at_floor"] else ""
        chance = f"{100 * row['chance']:.0f}"
        table.add_row(f"{row['task']} v{row['version']}", counts, score, span, error, chance, floor, row["run"])
    wide_console(out).print(table)
    mean = mean_of(rows)
    if mean is not None:
        incomplete = "" if mean["n"] == len(rows) else ", incomplete"
        out.line(f"mean of {mean['n']} tasks: {100 * mean['score']:.1f}, error {100 * mean['error']:.1f}{incomplete}")
    for row in rows:
        for reason in row["not_run"]:
            out.line(f"{row['task']}: not run: {reason}")


def dry_run(args: argparse.Namespace, out: Output) -> int:
    """How long a tier takes here, from the first item of each task; one that cannot be asked is told and counts 0."""
    from evals.run import describe

    tasks = chosen(args)
    rows: list[dict[str, Any]] = []
    backend = open_backend(args)
    try:
        for task, count in tasks:
            n = describe(task, backend, count, args.batch).items
            start = time.perf_counter()
            (asked,) = backend.ask([task.question(task.items()[0])])
            each_s = 0.0 if asked.refused else time.perf_counter() - start
            rows.append({"task": task.name, "items": n, "seconds_each": each_s, "refused": asked.refused})
            told = f"not run: {asked.refused}" if asked.refused else f"{each_s:.1f} s for the first"
            out.line(f"{task.name}: {n} items, {told}, about {n * each_s / 60:.1f} minutes")
    finally:
        backend.close()
    minutes = math.fsum(row["items"] * row["seconds_each"] for row in rows) / 60
    out.line(f"{args.tier}: about {minutes:.0f} minutes in all; items that run side by side take less")
    out.document({"tier": args.tier, "minutes": minutes, "tasks": rows})
    return 0


def compare_runs(args: argparse.Namespace, out: Output, store: Store) -> int:
    """Task by task; the pooled drop is the mean over the tasks that gate."""
    from evals.compare import compare, pooled
    from lab.eval_ledger import find_runs, info_of, read_items
    from lab.judge import document

    left, right = (find_runs(store, name) for name in args.runs)
    found: list[Comparison] = []
    for task in sorted(left.keys() & right.keys()):
        sides = left[task], right[task]
        infos, items = [info_of(row) for row in sides], [read_items(store, row) for row in sides]
        found.append(compare(infos[0], infos[1], items[0], items[1]))
    print_comparisons(out, found)
    apart = sorted(left.keys() ^ right.keys())
    if apart:
        out.line(f"only in one of them: {', '.join(apart)}")
    together = pooled(found)
    out.line(together.line())
    documents = [document(each) for each in found]
    out.document({"tasks": documents, "pooled": document(together), "only_one": apart}, always=True)
    return 1 if together.verdict == "worse" or any(each.verdict == "worse" for each in found) else 0


def print_comparisons(out: Output, found: Sequence[Comparison]) -> None:
    """Scores of both, what flipped, p, the bound of the drop, the verdict; ids of what flipped below."""
    from rich.table import Table

    table = Table(title="candidate against reference, in points of 100", box=None, pad_edge=False)
    columns = ("task", "n", "ref.", "cand.", "won", "lost", "p", "drop", "upper", "margin", "MDE", "length", "verdict")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for each in found:
        points = [f"{100 * value:.1f}" for value in (each.drop, each.upper, each.margin, each.mde)]
        length = "" if each.length_ratio is None else f"{each.length_ratio:.2f}"
        scores = [f"{100 * value:.1f}" for value in (each.reference, each.candidate)]
        counts = (str(each.wins), str(each.losses), f"{each.p:.2g}")
        table.add_row(each.task, str(each.n), *scores, *counts, *points, length, each.verdict)
    wide_console(out).print(table)
    for each in found:
        out.line(f"{each.task}: {each.verdict}: {each.why}")
        if each.flipped:
            out.line(f"  flipped: {', '.join(each.flipped)}")


def list_runs(args: argparse.Namespace, out: Output, store: Store) -> int:
    """Every run, newest last."""
    from lab.eval_ledger import read_items
    from lab.tables import EvalRunRow

    rows = []
    for row in store.rows(EvalRunRow):
        found = read_items(store, row)
        done, left = len(found), sum(result.not_run for result in found)
        kept = {"run": row.sha256, "label": row.label, "task": row.task, "done": done, "items": row.items}
        rows.append(kept | {"not_run": left})
        beside = f" ({left} not run)" if left else ""
        counts = f"{done} of {row.items}{beside}"
        out.line(f"{row.sha256}  {row.task} v{row.version}  {counts}  {row.label}  {row.started}")
    out.document({"runs": rows})
    return 0


def show_run(args: argparse.Namespace, out: Output, store: Store) -> int:
    """The items of a run, or one of them in full."""
    from engine import errors
    from lab.eval_ledger import find_runs, read_items
    from lab.judge import document

    if args.clusters:
        return show_clusters(args, out, store)
    shown = []
    for task, row in find_runs(store, args.runs[0]).items():
        for result in read_items(store, row):
            if args.item not in (None, result.item):
                continue
            shown.append({"task": task, **document(result)})
            value = "not run" if result.not_run else f"{result.score:g}"
            out.line(f"{task}  {result.item}  {value}  {result.extracted[:60]!r}  {result.why}")
            if args.item is not None:
                out.line(f"prompt {result.prompt_sha256}, {result.prompt_tokens} tokens; ended: {result.finish_reason}")
                out.line(result.output)
    if args.item is not None and not shown:
        raise errors.InvalidValue("--item", args.item, "an id of this run's items")
    out.document({"items": shown})
    return 0


def show_clusters(args: argparse.Namespace, out: Output, store: Store) -> int:
    """Means of the clusters of a run's tasks, each with its interval, and the mean over clusters with its error."""
    from engine import errors
    from lab.eval_ledger import find_runs, read_items
    from lab.eval_scores import cluster_rows, mean_of

    if args.item is not None:
        raise errors.InvalidValue("--item", args.item, "not with --clusters")
    shown = {}
    for task, run_row in find_runs(store, args.runs[0]).items():
        rows = cluster_rows(read_items(store, run_row))
        for row in rows:
            span = "no interval" if row["low"] is None else f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
            out.line(f"{task}  {row['cluster']}  {row['judged']} items  {100 * row['score']:.1f}  ({span})")
        mean = mean_of(rows)
        if mean is not None:
            out.line(f"{task}: mean of {mean['n']} clusters {100 * mean['score']:.1f}, error {100 * mean['error']:.1f}")
        if not rows:
            out.line(f"{task}: every item stands alone")
        shown[task] = {"clusters": rows, "mean": mean}
    out.document({"tasks": shown})
    return 0
