"""`frontier lab`: its sub-commands, in modules by what they do to an experiment."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.commands import lab_life, lab_run, lab_sessions, lab_view
from lab.console import Output
from lab.flags import check_folder

HELP = "declare, run, confirm, decide, promote and delete paired experiments"
EXAMPLE = "frontier lab run kv8 --profile quick"

Action = Callable[[argparse.Namespace, Output], int]
PARTS = (lab_life, lab_run, lab_sessions, lab_view)
ACTIONS: dict[str, Action] = {**lab_life.ACTIONS, **lab_run.ACTIONS, **lab_sessions.ACTIONS, **lab_view.ACTIONS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Subcommands of `frontier lab`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for part in PARTS:
        part.add_parsers(actions)


def run(args: argparse.Namespace) -> int:
    """Dispatch on the subcommand. A folder that could not be written to is refused before anything runs."""
    if "out" in vars(args) and args.action != "show":  # which writes only where there is something to draw
        check_folder("--out", args.out)
    return ACTIONS[args.action](args, Output(as_json=args.json))
