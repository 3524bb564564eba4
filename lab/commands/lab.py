"""`frontier lab`: run, list, show and audit experiments."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example, lab_sessions
from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.config import LabConf
    from lab.run import RunResult
    from lab.store import Store

HELP = "run, confirm, decide, list, show and audit paired experiments; promote and delete come with the lab issue"
EXAMPLE = "frontier lab run kv8 --profile quick"
NOT_BUILT = ("new", "promote", "delete", "extend")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Subcommands of `frontier lab`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_ = actions.add_parser(
        "run",
        help="measure one experiment and say which row of the decision table holds",
        epilog=example("frontier lab run kv8 --profile quick"),
    )
    run_.add_argument("name")
    run_.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="profile.aa_quads=8, experiment.delta=0.2, ...")
    run_.add_argument("--profile", default="full", metavar="NAME", help="quick (minutes, decides nothing) or full")
    run_.add_argument("--model", help="built-in name, model folder or hub id (default: lab/conf/lab.yaml)")
    run_.add_argument("--out", type=Path, default=Path("outputs"), help="folder of the run's files (default: outputs)")
    actions.add_parser(
        "list",
        help="state, days to expiry and last verdict of every experiment",
        epilog=example("frontier lab list"),
    )
    show = actions.add_parser(
        "show",
        help="declaration, sessions and decisions of one experiment",
        epilog=example("frontier lab show kv8"),
    )
    show.add_argument("name")
    audit = actions.add_parser(
        "audit",
        help="exit code 1 for an expired experiment without a decision",
        epilog=example("frontier lab audit --as-of 2026-12-29"),
    )
    audit.add_argument("--as-of", metavar="DATE", help="judge as of this day (default: today)")
    power = actions.add_parser(
        "power",
        help="the smallest effect each look would find, from the last A/A",
        epilog=example("frontier lab power kv8"),
    )
    power.add_argument("name")
    lab_sessions.add_parsers(actions)
    for name in NOT_BUILT:
        refused = actions.add_parser(name, help="not built yet")
        refused.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Dispatch on the subcommand."""
    from engine import errors

    if args.action in NOT_BUILT:
        raise errors.NotBuilt(
            f"frontier lab {args.action}", "it comes with the lab issue; run, list, show and audit work"
        )
    actions = {"run": run_one, "list": list_all, "show": show_one, "audit": audit_all, "power": power_of}
    actions |= lab_sessions.ACTIONS
    return actions[args.action](args, Output(as_json=args.json))


def run_one(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever the verdict is: an undecided or negative answer is an answer."""
    from lab.run import run_experiment

    overrides = list(args.overrides) + ([f"model='{args.model}'"] if args.model else [])
    out.line(f"frontier lab run {args.name}, profile {args.profile}, BLAS {args.blas}")
    with progress_callback() as bar:
        result = run_experiment(
            args.name,
            profile=args.profile,
            overrides=overrides,
            blas=args.blas,
            say=out.line,
            progress=bar,
            out=args.out,
        )
    print_result(out, result)
    out.document(result.as_dict(), always=True)
    return 0


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
    for reason in result.reasons:
        out.line(f"  - {reason}")
    out.line(f"{result.seconds / 60:.1f} minutes (expected {result.expected_min:.1f}), {result.samples} samples")
    out.line(f"files: {result.folder}, database: {result.database}")


def _open(out: Output) -> Store | None:
    """The database, if there is one; reading never creates it. Raises `lab.store.NoDatabase` where FRONTIER_DB names
    one that does not exist."""
    from lab import store

    found = store.existing()
    if found is None:
        out.line(f"no database yet at {store.place()}: nothing was run")
    return found


def _status(conf: LabConf, store: Store | None, today: date) -> dict[str, Any]:
    e = conf.experiment
    row = store.experiment(e.name) if store else None
    decisions = store.decisions(e.name) if store else []
    last = decisions[-1] if decisions else None
    return {
        "name": e.name,
        "state": row.state if row else "declared",
        "class": e.quality_class,
        "kind": e.kind,
        "primary": e.primary,
        "days_to_expiry": (date.fromisoformat(e.expires_on) - today).days,
        "sessions": len(store.sessions(e.name)) if store else 0,
        "last_verdict": last.verdict if last else None,
        "last_row": last.rule_row if last else None,
        "machine": last.machine_key if last else None,
    }


def list_all(args: argparse.Namespace, out: Output) -> int:
    """Expiries of today are warnings here, never failures."""
    from rich.table import Table

    from lab.config import compose, names

    store, today = _open(out), datetime.now(UTC).date()
    rows = [_status(compose(name), store, today) for name in names()]
    if store:
        store.close()
    table = Table(box=None)
    for column in ("experiment", "state", "class", "primary", "days to expiry", "sessions", "last verdict"):
        table.add_column(column)
    for r in rows:
        days = str(r["days_to_expiry"]) if r["days_to_expiry"] >= 0 else f"expired {-r['days_to_expiry']} days ago"
        verdict = f"row {r['last_row']}: {r['last_verdict']}" if r["last_verdict"] else "none"
        table.add_row(r["name"], r["state"], r["class"], r["primary"], days, str(r["sessions"]), verdict)
    wide_console(out).print(table)
    out.document({"experiments": rows})
    return 0


def show_one(args: argparse.Namespace, out: Output) -> int:
    """The declaration, then what the database holds of it."""
    from lab.config import compose

    conf = compose(args.name)
    e = conf.experiment
    store = _open(out)
    out.line(f"{e.name}: {e.hypothesis}")
    out.line(f"{e.kind}, class {e.quality_class}, primary {e.primary} by {conf.delta:g}, guardrails {e.guardrails}")
    for role, arm in (("base", e.base), ("candidate", e.candidate)):
        out.line(f"{role}: {arm.stack}, kv {arm.kv}, dtype {arm.dtype}, chunk {arm.chunk}")
    out.line(f"declared {e.declared_on}, expires {e.expires_on}, targets {', '.join(e.targets)}")
    sessions, decisions = [], []
    status = _status(conf, store, datetime.now(UTC).date())
    if store:
        with store:
            sessions = [
                {"session": s.uid, "profile": s.profile, "started": s.started, "outcome": store.outcome(s.id)}
                for s in store.sessions(e.name)
            ]
            decisions = [
                {"at": d.at, "machine": d.machine_key, "row": d.rule_row, "verdict": d.verdict, "reasons": d.reasons}
                for d in store.decisions(e.name)
            ]
    for s in sessions:
        out.line(f"session {s['session']}, {s['profile']}, {s['outcome']}")
    for d in decisions:
        out.line(f"decision {d['at']} on {d['machine']}: row {d['row']}, {d['verdict']}")
        for reason in d["reasons"]:
            out.line(f"  - {reason}")
    out.line("no session yet" if not sessions else f"{len(sessions)} sessions, {len(decisions)} decisions")
    out.document({**status, "sessions": sessions, "decisions": decisions})
    return 0


def audit_all(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when something is wrong as of the day."""
    from lab.audit import audit, parse_day

    today = parse_day(args.as_of) if args.as_of else datetime.now(UTC).date()
    store = _open(out)
    problems, warnings = audit(store, today)
    if store:
        store.close()
    for text in warnings:
        out.line(f"warning: {text}")
    for text in problems:
        out.line(f"problem: {text}")
    out.line(f"audit as of {today}: {len(problems)} problems, {len(warnings)} warnings")
    out.document({"as_of": str(today), "problems": problems, "warnings": warnings})
    return 1 if problems else 0


def power_of(args: argparse.Namespace, out: Output) -> int:
    """From the last A/A with at least two launches; without one, from the machine class's limit, and it says so."""
    from lab.audit import power
    from lab.config import compose

    conf = compose(args.name)
    store = _open(out)
    rows = power(conf, store)
    if store:
        store.close()
    for row in rows:
        found = "no finite effect" if row["mde"] is None else f"{100 * row['mde']:.1f} %"
        out.line(f"{row['metric']}: {row['quads']} quads find {found} (sd {100 * row['sd']:.1f} %, {row['from']})")
    if not rows:
        out.line(f"{args.name} has no timed metric: counted ones compare exactly")
    out.document({"experiment": args.name, "power": rows})
    return 0
