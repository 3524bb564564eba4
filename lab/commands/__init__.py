"""The commands of `frontier`.

A command is a module with HELP (one line), EXAMPLE (a command line), `add_arguments(parser)` and `run(args) -> int`;
it imports nothing heavy at its top, since `frontier --help` reads them all. Global flags reach it as `args.json`,
`args.debug` and `args.blas` (the BLAS in use, already chosen; None for a command that is not in `BLAS_DEFAULT`).
"""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

from engine import errors

# name -> "module:entry point"
COMMANDS = {
    "doctor": "lab.commands.doctor:run",
    "selfcheck": "lab.commands.selfcheck:run",
    "models": "lab.commands.models:run",
    "convert": "lab.commands.convert:run",
    "generate": "lab.commands.generate:run",
    "chat": "lab.commands.chat:run",
    "trace": "lab.commands.trace:run",
    "fit": "lab.commands.fit:run",
    "parity": "lab.commands.parity:run",
    "golden": "lab.commands.golden:run",
    "data": "lab.commands.data:run",
    "eval": "lab.commands.eval:run",
    "kl": "lab.commands.kl:run",
    "perplexity": "lab.commands.perplexity:run",
    "zoo": "lab.commands.zoo:run",
    "bench": "lab.commands.bench:run",
    "lab": "lab.commands.lab:run",
    "scorecard": "lab.commands.scorecard:run",
}

# The commands that compute in this process or choose for their workers: the BLAS that each takes unless told.
BLAS_DEFAULT = {
    "doctor": "auto",
    "selfcheck": "bundled",
    "convert": "bundled",
    "generate": "auto",
    "chat": "auto",
    "trace": "auto",
    "fit": "auto",
    "parity": "bundled",
    "golden": "bundled",
    "eval": "auto",
    "kl": "auto",
    "perplexity": "auto",
    "zoo": "auto",
    "bench": "auto",
    "lab": "auto",
    "scorecard": "auto",
}


class Command(Protocol):
    """What the module of a command offers."""

    HELP: str
    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def example(*lines: str) -> str:
    """The end of a help text: command lines that work as they stand."""
    return "\n  ".join(["example:", *lines])


def load_command(name: str) -> Command:
    """Import the module of a command; raises `UnknownField` with the known names."""
    if name not in COMMANDS:
        raise errors.UnknownField("frontier", name, COMMANDS)
    module, _ = COMMANDS[name].split(":")
    return cast(Command, importlib.import_module(module))
