"""`frontier lab run`: one experiment, or a sweep of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.run import RunResult
    from lab.sweep import Job

PARTS = ("all", "kl")


AT_ONCE = 2


def add_parsers(actions: Any) -> None:
    """The parser of `run`."""
    run = actions.add_parser("run", help="measure one experiment and say which row of the decision table holds")
    run.intermixed = True
    run.add_argument("name")
    run.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="anywhere on the line: experiment.delta=0.2, machine=quiet; several values with commas. Whatever is not "
        "as declared makes the run exploratory: kept and shown, and counted by nothing (machine=CLASS apart)",
    )
    run.add_argument("--profile", default="full", metavar="NAME", help="quick (minutes, decides nothing) or full")
    run.add_argument(
        "--model",
        help="built-in name, model folder or hub id (default: the experiment's; another one explores)",
    )
    run.add_argument("--out", type=Path, default=Path("outputs"), help="folder of the run's files (default: outputs)")
    run.add_argument("--multirun", action="store_true", help="a job for each combination of overrides with commas")
    run.add_argument("--only", default="all", choices=PARTS, help="kl: the KL gate alone, without samples and verdict")
    run.add_argument(
        "--launcher", default="basic", metavar="NAME", help="of a sweep's jobs: basic, or joblib, submitit, ray for KL"
    )
    sweep = "experiment.candidate.kv=kv8,kv6 --multirun --only kl"
    run.epilog = example("frontier lab run kv8 --profile quick", f"frontier lab run kv8 {sweep}")
    run.add_argument("--jobs", type=int, metavar="N", help="at a time, with another launcher (default: 2)")


def run_one(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever the verdict is: a negative answer is an answer. 1 when a job of a sweep failed."""
    from engine import errors
    from lab.sweep import sweeps

    if "=" in args.name and args.overrides:  # the overrides came first
        plain = [word for word in args.overrides if "=" not in word]
        args.overrides = [args.name, *(word for word in args.overrides if word not in plain[:1])]
        args.name = plain[0] if plain else args.name
    words = list(args.overrides) + ([f"model='{args.model}'"] if args.model else [])
    if any(word.partition("=")[0] == "profile" for word in words):
        raise errors.InvalidValue("override", "profile", "the flag --profile")
    if args.jobs is not None and args.launcher == "basic":
        raise errors.InvalidValue("--jobs", args.jobs, "absent: the launcher basic runs one job at a time")
    if args.multirun:
        return run_jobs(args, words, out)
    if args.launcher != "basic":
        raise errors.InvalidValue("--launcher", args.launcher, "basic, but with --multirun")
    for word in args.overrides:
        if "=" not in word:
            raise errors.InvalidValue("override", word, "key=value, for instance experiment.delta=0.2")
    if sweeps(words):
        raise errors.InvalidValue("override", " ".join(args.overrides), "one value each, or --multirun for a job each")
    document = run_kl(args, words, args.out, out) if args.only == "kl" else run_timed(args, words, args.out, out)
    out.document(document, always=True)
    return 0


def check_startable(args: argparse.Namespace, words: list[str]) -> None:
    """What is refused before anything is loaded: an expired experiment, another BLAS than its base's."""
    from datetime import UTC, datetime

    from engine import errors
    from lab.config import compose
    from lab.expiry import require_unexpired

    conf = compose(args.name, [f"profile={args.profile}", *words])
    require_unexpired(conf, datetime.now(UTC).date())
    wanted = conf.experiment.base.blas
    if wanted not in ("auto", args.blas):
        raise errors.InvalidValue("--blas", args.blas, f"{wanted}: the base of {args.name} runs on it")


def run_timed(args: argparse.Namespace, words: list[str], folder: Path, out: Output) -> dict[str, Any]:
    """The whole run of one experiment; its result as a document."""
    from lab.clock import SteadyClock
    from lab.declare import enter_all
    from lab.run import run_experiment
    from lab.store import Store

    check_startable(args, words)
    with Store.open() as store:
        for name, error in enter_all(store).items():
            out.line(f"note: experiments/{name}.yaml cannot be read, and has no row: {error}")
    out.line(f"frontier lab run {args.name}, profile {args.profile}, BLAS {args.blas}")
    clock = SteadyClock()
    with progress_callback() as bar:
        result = run_experiment(
            args.name,
            profile=args.profile,
            overrides=words,
            blas=args.blas,
            say=out.line,
            progress=bar,
            out=folder,
            clock=clock,
        )
    note_jump(result.session, clock.jump_s, out)
    print_result(out, result)
    return result.as_dict()


JUMP_S = 1.0


def note_jump(session: str, jump_s: float, out: Output) -> None:
    """Say and record that the system's clock was set while samples were taken; their times do not follow it."""
    from lab.store import Store
    from lab.tables import SessionRow

    if abs(jump_s) < JUMP_S:
        return
    out.line(f"note: the system's clock was set by {jump_s:+.1f} s during the run; times of samples do not follow it")
    with Store.open() as store:
        store.event(store.rows(SessionRow, uid=session)[0].id, "clock-jump", {"seconds": jump_s})


def run_kl(args: argparse.Namespace, words: list[str], folder: Path, out: Output) -> dict[str, Any]:
    """The KL gate of one experiment alone: written to kl.json in a new folder, and no verdict."""
    from engine import resolve_model
    from lab.config import compose
    from lab.fidelity import gate_of
    from lab.gates import run_gate
    from lab.judge import gate_words
    from lab.run import new_folder
    from lab.tree import write_json

    check_startable(args, words)
    conf = compose(args.name, [f"profile={args.profile}", *words])
    e = conf.experiment
    uid, own = new_folder(folder, e.name)
    out.line(f"frontier lab run {e.name} --only kl, profile {args.profile}, BLAS {args.blas}")
    with progress_callback() as bar:
        model = Path(resolve_model(conf.model, progress=bar))
        arms = [arm.stack_config(str(model), args.blas) for arm in (e.base, e.candidate)]
        runs = run_gate(conf, model, arms[0], arms[1], bar)
    for each in runs:
        out.line(f"{gate_words(conf)}: {each.words}")
    document = {
        "experiment": e.name,
        "session": uid,
        "only": "kl",
        "gate": gate_of(runs),
        "kl_mean": [each.kl_mean for each in runs],
        "status": [each.status for each in runs],
        "folder": str(own),
    }
    write_json(own / "kl.json", document | {"runs": [each.document for each in runs]})
    return document


def run_jobs(args: argparse.Namespace, words: list[str], out: Output) -> int:
    """A sweep. Exit code 1 when a job failed."""
    from lab.launch import require_launcher, run_parallel
    from lab.sweep import plan_sweep, require_serial, run_sweep

    timed = args.only == "all"
    if timed:
        require_serial(args.launcher)
    at_once = AT_ONCE if args.jobs is None else args.jobs
    if args.launcher != "basic":
        require_launcher(args.launcher, at_once)
    check_startable(args, [])
    jobs = plan_sweep(args.name, args.profile, words, args.out)
    out.line(f"sweep of {len(jobs)} jobs in {jobs[0].folder.parent}")
    if args.launcher == "basic":

        def work(job: Job) -> str:
            run = run_timed if timed else run_kl
            document = run(args, list(job.overrides), job.folder, out)
            return str(document["verdict" if timed else "gate"])

        ends = run_sweep(args.name, jobs, work, out.line)
    else:
        ends = run_parallel(args.name, args.profile, args.blas, jobs, args.launcher, at_once, out.line)
    failed = [end for end in ends if end.outcome == "failed"]
    for end in ends:
        out.line(f"job {end.number + 1}: {end.outcome}, {' '.join(end.overrides)}: {end.words}")
    out.line(f"{len(ends) - len(failed)} of {len(ends)} jobs finished, {len(failed)} failed")
    out.document(
        {"experiment": args.name, "sweep": jobs[0].folder.parent.name, "jobs": [end.__dict__ for end in ends]},
        always=True,
    )
    return 1 if failed else 0


def print_result(out: Output, result: RunResult) -> None:
    """The comparisons as a table, then row, verdict and every reason."""
    from rich.table import Table

    table = Table(title=f"{result.experiment}, {result.profile} profile, {result.machine_key}", box=None)
    for column in ("use", "metric", "state", "numbers"):
        table.add_column(column)
    for c in result.comparisons:
        table.add_row(c.use, c.metric, c.state, c.why)
    wide_console(out).print(table)
    for note in result.notes:
        out.line(f"note: {note}")
    out.line(f"row {result.row}: {result.verdict}")
    if result.otherwise:
        out.line(f"exploratory: not measured as declared ({'; '.join(result.otherwise)})")
        out.line(f"  no decision was written: {result.experiment} is decided, promoted and deleted without it")
    for reason in result.reasons:
        out.line(f"  - {reason}")
    out.line(f"{result.seconds / 60:.1f} minutes (expected {result.expected_min:.1f}), {result.samples} samples")
    out.line(f"files: {result.folder}, database: {result.database}")


ACTIONS = {"run": run_one}
