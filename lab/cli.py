"""The `frontier` command: global flags, the choice of BLAS, errors as one line, exit codes.

Exit codes: 0 done; 1 the command ran and its answer is no (a parity cell differs, a gate fails); 2 bad input or
something missing; 3 an oracle died or was not what it claimed; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NoReturn

from engine import errors, use_blas
from lab.commands import BLAS_DEFAULT, COMMANDS, example, load_command

BLAS_ENV = "FRONTIER_BLAS"
GLOBAL_FLAGS = """global flags, anywhere on the line:
  --json            the last line of stdout is one JSON document; text goes to stderr
  --debug           show the traceback of an error
  --blas NAME       auto, bundled or openblas: the matrix library on a Linux CPU, chosen before MLX loads"""


class UsageError(errors.FrontierError):
    """The command line does not parse."""


class Parser(argparse.ArgumentParser):
    """argparse with typed errors and full flag names only: `--temp` is never taken for `--temperature`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.intermixed = False  # words of a list may stand behind flags

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, and with `intermixed` flags and words in any order."""
        if not self.intermixed:
            return super().parse_known_args(args, namespace)
        self.intermixed = False  # which argparse's own form of it comes back through
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.intermixed = True

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _split_global_flags(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(prog="frontier", add_help=False)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--blas")
    return parser.parse_known_args(list(argv))


def overview() -> str:
    """The text of `frontier --help`."""
    lines = ["usage: frontier COMMAND [flags]", "", "commands:"]
    lines += [f"  {name:<12}{load_command(name).HELP}" for name in COMMANDS]
    return "\n".join([*lines, "", GLOBAL_FLAGS, "", "frontier COMMAND --help shows a command's flags and an example."])


def parser_of(name: str) -> Parser:
    """The parser of a command's own flags. Raises `UnknownField` with the known names."""
    command = load_command(name)
    epilog = f"{example(*command.EXAMPLE.splitlines())}\n\n{GLOBAL_FLAGS}"
    parser = Parser(prog=f"frontier {name}", description=command.HELP, epilog=epilog)
    command.add_arguments(parser)
    return parser


def _choose_blas(command: str, asked: str | None) -> str | None:
    """The flag wins, then the environment, then the command's default."""
    if command not in BLAS_DEFAULT:
        if asked is not None:
            raise errors.InvalidValue("--blas", asked, f"only with {', '.join(BLAS_DEFAULT)}")
        return None
    return use_blas(asked or os.environ.get(BLAS_ENV) or BLAS_DEFAULT[command])


def _run(flags: argparse.Namespace, rest: list[str]) -> int:
    if not rest or rest[0] in ("-h", "--help"):
        print(overview())
        return 0 if rest else 2
    if rest[0] == "--version":
        print(f"mlx-frontier {metadata.version('mlx-frontier')}")
        return 0
    name, arguments = rest[0], rest[1:]
    args = parser_of(name).parse_args(arguments)
    args.json, args.debug, args.blas = flags.json, flags.debug, _choose_blas(name, flags.blas)
    return load_command(name).run(args)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. `--help` raises SystemExit(0), as argparse does."""
    line = list(sys.argv[1:] if argv is None else argv)
    debug, as_json = "--debug" in line, "--json" in line
    # transformers serves as the tokenizer here; that PyTorch is missing matters to nobody.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        flags, rest = _split_global_flags(line)
        code = _run(flags, rest)
        sys.stdout.flush()
    except (errors.FrontierError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our stdout left (`| head`); without this the interpreter complains once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        if debug:
            traceback.print_exc()
        message = " ".join(str(error).split())
        print(f"error: {message}", file=sys.stderr)
        if as_json:
            print(json.dumps({"error": message, "type": type(error).__name__}))
        return error.exit_code if isinstance(error, errors.FrontierError) else 2
    except KeyboardInterrupt as stopped:
        if debug:
            traceback.print_exc()
        word = "terminated" if isinstance(stopped, Terminated) else "interrupted"
        print(word, file=sys.stderr)
        if as_json:
            print(json.dumps({"error": word, "type": type(stopped).__name__}))
        return 143 if word == "terminated" else 130
    return code


class Terminated(KeyboardInterrupt):
    """SIGTERM. What is being recorded notes how it ended, as it does for Ctrl-C."""


def _terminate(number: int, frame: object) -> None:
    raise Terminated


if __name__ == "__main__":
    sys.exit(main())
