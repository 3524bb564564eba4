"""One run that says how this project does on a machine nobody here has: steps, each on its own, and a file to share.

A step that fails is told in the file and the others go on. The file names no folder, user or host.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lab.device_plan import Cell as SpeedCell
from lab.device_plan import Group, Part, Turn
from lab.device_report import Report
from lab.device_words import CELL_COLUMNS, cell_row
from lab.scrub import scrub
from oracles.parity import BAD, CellResult

FORMAT = "mlx-frontier selfcheck 1"
LAUNCHES = 4
Status = Literal["ok", "no", "failed"]
FAILED_FRAMES = 3


@dataclass(frozen=True)
class Step:
    """`status`: "no" where the step ran and its answer is no, "failed" where it did not end; `summary`: in a line."""

    name: str
    status: Status
    seconds: float
    summary: str
    document: Mapping[str, Any]


Work = Callable[[], tuple[bool, str, Mapping[str, Any]]]


def run_steps(
    steps: Mapping[str, Work], tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> list[Step]:
    """Run all steps in order, whatever becomes of each. A step returns (good, a line, a document)."""
    found = []
    for name, work in steps.items():
        tell(f"{name} ...")
        begin = clock()
        try:
            good, summary, doc = work()
            step = Step(name, "ok" if good else "no", clock() - begin, summary, doc)
        except Exception as error:  # noqa: BLE001 - what fails on a foreign machine is what the file is to tell
            where = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            doc = {"error": type(error).__name__, "text": str(error), "where": where[-FAILED_FRAMES:]}
            line = " ".join(str(error).split())[:300]
            step = Step(name, "failed", clock() - begin, f"{type(error).__name__}: {line}", doc)
        tell(f"{name}: {step.status}, {step.summary} ({step.seconds:.0f} s)")
        found.append(step)
    return found


def turns_of(device: str, *, quick: bool) -> list[Turn]:
    """Speed pairs and A/A, the most telling first. On a CPU, and with `quick`, of a tiny model."""
    if quick or device == "cpu":
        group = Group(model="tiny", packing="fp32-4bit")
        tiny = (SpeedCell(group=group, prompt=16, rows=1),)
        parts: tuple[Part, ...] = ("aa", "ab")
        return [Turn(group=group, part=part, launch=0, cells=tiny) for part in parts]
    turns = []
    for launch in range(LAUNCHES):
        for model, packing, part, rows in (
            ("0.6b", "4bit", "ab", (1, 8)),
            ("0.6b", "4bit", "aa", (1,)),
            ("0.6b", "bf16", "ab", (1,)),
            ("135m", "bf16", "ab", (1, 8)),
        ):
            group = Group(model=model, packing=packing)
            cells = tuple(SpeedCell(group=group, prompt=128, rows=n) for n in rows)
            which: Part = "aa" if part == "aa" else "ab"
            turns.append(Turn(group=group, part=which, launch=launch, cells=cells, host=which == "ab" and not launch))
    return turns


def parity_step(results: Sequence[CellResult], left: int) -> tuple[bool, str, Mapping[str, Any]]:
    """The verdicts of the cells: counts, and each that is not equal in full. left: cells that there was no time for,
    which are no pass."""
    counts = Counter(result.status for result in results)
    rows = [result.as_dict() for result in results if result.status != "equal"]
    good = bool(results) and not left and not any(counts[status] for status in BAD)
    words = [f"{count} {status}" for status, count in sorted(counts.items())]
    words += [f"{left} not begun in time"] if left else []
    return good, ", ".join(words) or "no cells", {"counts": dict(counts), "not_begun": left, "not_equal": rows}


def speed_step(report: Report, turns: int, left: int) -> tuple[bool, str, Mapping[str, Any]]:
    """What the speed pairs gave; good where every asked cell has numbers."""
    ran = [cell for cell in report.cells if cell.ratios]
    line = "; ".join(
        f"{cell.cell}: {cell.ratios['decode_tok_s'].value:.3f} x mlx-lm"
        + (f" (A/A {cell.aa.value:.3f})" if cell.aa else "")
        for cell in ran
    )
    counts = f"{turns - left} of {turns} turns"
    return len(ran) == len(report.cells), f"{counts}; {line or 'nothing measured'}", {"report": report}


def as_document(steps: Sequence[Step], *, quick: bool, version: str) -> dict[str, Any]:
    """The file. Errors: none; it is written whatever the steps said."""
    from lab.judge import document

    doc = {"format": FORMAT, "version": version, "quick": quick, "ok": all(step.status == "ok" for step in steps)}
    found: dict[str, Any] = scrub(document(doc | {"steps": [asdict(step) for step in steps]}))
    return found


def as_markdown(doc: Mapping[str, Any], report: Report | None) -> str:
    """The same in short, for an issue or a message."""
    lines = [f"# Selfcheck{' (quick)' if doc['quick'] else ''}: {'all good' if doc['ok'] else 'not all good'}", ""]
    lines += ["| step | result | seconds | what |", "| --- | --- | --- | --- |"]
    for step in doc["steps"]:
        summary = step["summary"].replace("|", "/")
        lines.append(f"| {step['name']} | {step['status']} | {step['seconds']:.0f} | {summary} |")
    if report is not None:
        lines += ["", "| " + " | ".join(CELL_COLUMNS) + " |", "|" + " --- |" * len(CELL_COLUMNS)]
        lines += ["| " + " | ".join(map(scrub, cell_row(cell))) + " |" for cell in report.cells if cell.ratios]
    return "\n".join([*lines, ""])
