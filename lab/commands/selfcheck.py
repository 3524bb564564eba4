"""`frontier selfcheck`: what a machine's owner runs once, and one file to share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.console import Output
from lab.flags import check_folder

if TYPE_CHECKING:
    from lab.device_report import Report

HELP = "doctor, parity, A/A and speed pairs against mlx-lm on this machine, in ten minutes, as one file to share"
EXAMPLE = "frontier selfcheck --out FOLDER"
MINUTES = 10.0
PARITY_SHARE = 0.7  # of the minutes; speed pairs have what is left
STEM = "selfcheck"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier selfcheck`."""
    parser.add_argument("--quick", action="store_true", help="a tiny model and a part of the parity cells (a minute)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        metavar="N",
        help=f"for all of it (default: {MINUTES:g}): parity begins no cell once {100 * PARITY_SHARE:.0f} %% of it is "
        "over, no pair is begun that would not end in time, and each says what was left out; what has begun ends",
    )
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help=f"of {STEM}.json and {STEM}.md")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when every step is good, 1 when one says no or failed; the files are written in either case."""
    from engine import errors
    from lab.lock import hold_timing
    from lab.selfcheck import as_document, as_markdown, run_steps

    if not args.minutes > 0:
        raise errors.InvalidValue("--minutes", args.minutes, "a number > 0")
    check_folder("--out", args.out)
    out = Output(as_json=args.json)
    args.out.mkdir(parents=True, exist_ok=True)
    held: list[Report] = []
    with hold_timing("frontier selfcheck"):
        steps = run_steps(steps_of(args, held), out.line)
    doc = as_document(steps, quick=args.quick, version=_version())
    (args.out / f"{STEM}.json").write_text(json.dumps(doc, indent=1) + "\n", encoding="utf-8")
    (args.out / f"{STEM}.md").write_text(as_markdown(doc, held[0] if held else None), encoding="utf-8")
    out.line(f"to share: {STEM}.json and {STEM}.md in {args.out.resolve()}; they name no folder, user or host")
    out.document(doc)
    return 0 if doc["ok"] else 1


def _version() -> str:
    try:
        return metadata.version("mlx-frontier")
    except metadata.PackageNotFoundError:
        return "source tree"


def steps_of(
    args: argparse.Namespace, held: list[Report]
) -> dict[str, Callable[[], tuple[bool, str, Mapping[str, Any]]]]:
    """The steps by name. held: takes the report of the speed pairs."""
    begin, whole_s = time.monotonic(), 60 * args.minutes
    return {
        "doctor": doctor,
        "parity": lambda: parity(args.blas, begin + PARITY_SHARE * whole_s, quick=args.quick),
        "speed": lambda: speed(args, begin + whole_s, held),
    }


def doctor() -> tuple[bool, str, Mapping[str, Any]]:
    """What this machine is."""
    from lab.commands.doctor import report
    from lab.fingerprint import take

    doc, print_ = report(), take()
    m = doc["machine"]
    line = (
        f"{m['key']}, {m['accelerator'] or m['cpu']}, mlx {doc['versions']['mlx']}, mlx-lm {doc['versions']['mlx-lm']}"
    )
    return True, line, doc | {"code": print_.code.__dict__}


def parity(blas: str, deadline: float, *, quick: bool) -> tuple[bool, str, Mapping[str, Any]]:
    """The device suite, or a small part of it with `quick`. A cell that has begun by the deadline ends."""
    from lab.selfcheck import parity_step
    from oracles.device_suite import device_cells
    from oracles.parity import run_cells

    cells = device_cells(quick=quick)
    found = []
    with closing(run_cells(cells, blas=blas, bisect=True)) as running:
        for result in running:
            found.append(result)
            if time.monotonic() > deadline:
                break
    return parity_step(found, len(cells) - len(found))


def speed(args: argparse.Namespace, deadline: float, held: list[Report]) -> tuple[bool, str, Mapping[str, Any]]:
    """A/A and pairs, as far as the time goes, kept in the lab's database as any run is."""
    from engine import machine
    from lab.device_bench import Taking
    from lab.device_ceilings import measure, read_counts
    from lab.device_ledger import DeviceRun, Setup, taken
    from lab.device_models import build
    from lab.device_report import read_report
    from lab.fingerprint import take
    from lab.selfcheck import speed_step, turns_of
    from lab.store import Store
    from oracles.client import Worker

    turns = turns_of(machine().device, quick=args.quick)
    folders = build(list(dict.fromkeys((turn.group.model, turn.group.packing) for turn in turns)))
    models = {" ".join(pair): read_counts(folder) for pair, folder in folders.items()}
    setup = Setup(print=take(), folders=folders, blas=args.blas)
    about = {"ceilings": measure().__dict__, "models": models, "minutes": args.minutes}
    with Store.open() as store:
        left, seen = taken(store, setup, turns)
        with DeviceRun.begin(store, setup, about, "frontier selfcheck") as keep:
            taking = Taking(
                folders=folders,
                blas=args.blas,
                start=lambda config: Worker(config, wait=False),
                keep=keep,
                tick=lambda _what: None,
            )
            rest = taking.turns(left, deadline, seen)
        cells = list(dict.fromkeys(cell for turn in turns for cell in turn.cells))
        report = read_report(store, setup.print.machine_key, cells)
    held.append(report)
    return speed_step(report, len(turns), len(rest))
