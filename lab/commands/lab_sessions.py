"""`frontier lab confirm | resume | decide | replay`: further sessions of an experiment, verdicts from the database."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, progress_callback

if TYPE_CHECKING:
    from lab.store import Store


def add_parsers(actions: Any) -> None:
    """The subcommands of this module."""
    confirm = actions.add_parser(
        "confirm",
        help="measure the confirmation that the newest decision asks for",
        epilog=example("frontier lab confirm kv8"),
    )
    confirm.add_argument("name")
    resume = actions.add_parser(
        "resume",
        help="go on with a session whose process has died; nothing is measured twice",
        epilog=example("frontier lab resume kv8"),
    )
    resume.add_argument("name")
    resume.add_argument("session", nargs="?", help="its id (default: the newest that did not end)")
    for parser in (confirm, resume):
        parser.add_argument("--out", type=Path, default=Path("outputs"), help="folder of the run's files")
    decide = actions.add_parser(
        "decide",
        help="decide again from the database, without measuring, and say what is left out",
        epilog=example("frontier lab decide kv8 --machine linux-x86_64-cpu-bundled"),
    )
    decide.add_argument("name")
    decide.add_argument(
        "--as-of", metavar="DATE", help="as of this day, not before the last that was measured (default: today)"
    )
    decide.add_argument("--machine", metavar="KEY", help="one machine key (default: each that measured it)")
    replay = actions.add_parser(
        "replay",
        help="judge every decision again from its raw samples; exit code 1 if one differs",
        epilog=example("frontier lab replay kv8"),
    )
    replay.add_argument("name")


def _surroundings(args: argparse.Namespace, out: Output, bar: Any) -> dict[str, Any]:
    return {"blas": args.blas, "say": out.line, "progress": bar, "out": args.out}


def confirm(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever the verdict is."""
    from lab.commands.lab_run import print_result
    from lab.run import confirm_experiment

    require_known(args.name)
    with progress_callback() as bar:
        result = confirm_experiment(args.name, **_surroundings(args, out, bar))
    print_result(out, result)
    out.document(result.as_dict(), always=True)
    return 0


def resume(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 whatever the verdict is."""
    from lab.commands.lab_run import print_result
    from lab.run import resume_experiment

    require_known(args.name)
    with progress_callback() as bar:
        result = resume_experiment(args.name, args.session, **_surroundings(args, out, bar))
    print_result(out, result)
    out.document(result.as_dict(), always=True)
    return 0


def require_known(name: str) -> None:
    """Raise `UnknownField` with the known for a name that no file and no row has: it may be mistyped."""
    from engine import errors
    from lab import store
    from lab.config import names

    known = names()
    if name in known:
        return
    if store.exists():
        with store.Store.open(read_only=True) as opened:
            if opened.experiment(name) is not None:
                return
    raise errors.UnknownField("experiments", name, known)


def _existing(name: str, *, read_only: bool = False) -> Store:
    """The database; one that is not there holds nothing to judge, and is not made."""
    from lab import store
    from lab.deciding import NothingToDecide

    require_known(name)
    if not store.exists():
        raise NothingToDecide(f"{name}: there is no database at {store.database_url()}; frontier lab run {name}")
    return store.Store.open(read_only=read_only)


def decide(args: argparse.Namespace, out: Output) -> int:
    """Row, verdict and reasons per machine key; each is a new decision row."""
    from lab.audit import parse_day
    from lab.config import compose, names
    from lab.deciding import check_day, decide_again

    today = datetime.now(UTC).date()
    day = parse_day(args.as_of) if args.as_of else today
    declared = compose(args.name) if args.name in names() else None
    with _existing(args.name) as store:
        check_day(store, args.name, day, today)
        found, left_out = decide_again(store, args.name, day, args.machine, declared)
    for why in left_out:
        out.line(f"left out: {why}")
    for each in found:
        judged = each.judged
        out.line(f"{each.machine_key}, session {each.session}, as of {day}")
        for note in judged.notes:
            out.line(f"note: {note}")
        out.line(f"row {judged.decision.row}: {judged.decision.verdict}")
        for reason in (*judged.decision.reasons, *judged.why):
            out.line(f"  - {reason}")
    rows = [
        {
            "machine": each.machine_key,
            "session": each.session,
            "decision": each.decision_id,
            "row": each.judged.decision.row,
            "verdict": each.judged.decision.verdict,
            "reasons": [*each.judged.decision.reasons, *each.judged.why],
            "facts": asdict(each.judged.facts),
        }
        for each in found
    ]
    out.document({"experiment": args.name, "as_of": str(day), "decisions": rows, "left_out": list(left_out)})
    return 0


def replay(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when equal code reads another verdict out of the rows."""
    from lab.deciding import replay as replay_all

    with _existing(args.name, read_only=True) as store:
        found = replay_all(store, args.name)
    for each in found:
        head = f"decision {each.decision_id} of {each.at}"
        if each.state == "same":
            out.line(f"{head}: the same, {each.stored_verdict}")
        elif each.state == "not readable":
            out.line(f"{head}: {each.stored_verdict}; not readable: {each.why}")
        else:
            out.line(f"{head}: stored {each.stored_verdict}; from the rows {each.verdict}")
            for text in (each.stored, each.again):
                out.line(f"  {text}")
        for other in each.other:
            out.line(f"  judged by other code: {other}")
    states = [each.state for each in found]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("same", "other", "not readable"))
    out.line(f"replayed {len(found)} decisions of {args.name}: {counts}")
    rows = [asdict(each) | {"state": each.state, "fault": each.fault} for each in found]
    out.document({"experiment": args.name, "decisions": rows})
    return 1 if any(each.fault for each in found) else 0


ACTIONS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "confirm": confirm,
    "resume": resume,
    "decide": decide,
    "replay": replay,
}
