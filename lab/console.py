"""What a command prints and where: results, progress bars, one JSON document.

Without `--json` text goes to stdout. With it text goes to stderr and stdout ends with one line of JSON, so that a
script can read the last line of either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

ProgressCallback = Callable[[str, int, int | None], None]
TABLE_WIDTH = 120


class Output:
    """The two channels of one command. `as_json` is the command's --json flag."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def text_stream(self) -> TextIO:
        """Where text for people goes."""
        return sys.stderr if self.as_json else sys.stdout

    def line(self, text: str = "") -> None:
        """One line of text for people."""
        print(text, file=self.text_stream, flush=True)

    def piece(self, text: str) -> None:
        """A piece of a running text, shown at once."""
        print(text, end="", file=self.text_stream, flush=True)

    def document(self, document: Mapping[str, Any], *, always: bool = False) -> None:
        """The result as one line of JSON on stdout: with --json, or `always` (the measuring commands)."""
        if self.as_json or always:
            print(json.dumps(document, sort_keys=False, allow_nan=False), flush=True)


def wide_console(out: Output) -> Console:
    """A console for tables: wide enough for a row also where there is no terminal to ask for its width."""
    found = Console(file=out.text_stream, highlight=False)
    return Console(file=out.text_stream, highlight=False, width=max(found.width, TABLE_WIDTH))


@contextmanager
def progress_callback(*, quiet: bool = False) -> Iterator[ProgressCallback]:
    """A `progress(label, done, total)` function that draws one bar a label on stderr; total None is a pulse.

    quiet: no bars, for callers that print a line of their own.
    """
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
    )
    bars = Progress(*columns, console=Console(stderr=True), disable=quiet)
    tasks: dict[str, TaskID] = {}

    def advance(label: str, done: int, total: int | None) -> None:
        bars.start()  # only now: a step with nothing to report draws nothing
        if label not in tasks:
            for task in bars.tasks:  # steps come one after the other; a pulse has no end of its own
                if not task.finished:
                    bars.update(task.id, total=task.total or 1, completed=task.total or 1)
            tasks[label] = bars.add_task(label, total=total)
        bars.update(tasks[label], completed=done, total=total)

    try:
        yield advance
    finally:
        if tasks:
            bars.stop()


def size(count: int) -> str:
    """Bytes for people: `138.1 MB` (powers of ten, as file listings and disks count)."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
