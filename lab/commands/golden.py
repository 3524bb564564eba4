"""`frontier golden record|verify`: the oracles' answers as files, by machine key."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab.console import Output, progress_callback

HELP = "record what the oracles answer, or check engine and oracles against the record"
EXAMPLE = "frontier golden verify"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier golden`."""
    parser.add_argument("action", choices=("record", "verify"))
    parser.add_argument("--suite", choices=("tiny",), default="tiny", help="seeded tiny models of the seven families")
    parser.add_argument("--goldens", type=Path, default=Path("goldens"), help="the folder (default: goldens)")


def run(args: argparse.Namespace) -> int:
    """verify: exit code 0 when all is equal or this machine has no goldens ("not comparable"), else 1."""
    out = Output(as_json=args.json)
    return record(out, args.goldens) if args.action == "record" else verify(out, args.goldens)


def record(out: Output, root: Path) -> int:
    """Run the oracles and write their answers."""
    from engine import machine
    from oracles.record import record as record_goldens
    from oracles.record import tiny_specs

    specs = tiny_specs()
    with progress_callback() as progress:
        folder = record_goldens(specs, root, progress=progress)
    size = sum(path.stat().st_size for path in folder.iterdir())
    out.line(f"{len(specs)} goldens in {folder} ({size / 1e6:.2f} MB) for machine key {machine().key}")
    out.document({"ok": True, "machine": machine().key, "folder": str(folder), "goldens": len(specs), "bytes": size})
    return 0


def verify(out: Output, root: Path) -> int:
    """Engine against goldens, and the oracle against its own record."""
    from engine import errors, machine
    from oracles.record import MANIFEST, NOT_COMPARABLE, comparable, read_manifest
    from oracles.record import verify as verify_goldens

    if not root.is_dir():
        raise errors.InvalidValue("--goldens", str(root), "an existing folder of goldens")
    key = machine().key
    there = sorted(path.name for path in root.iterdir() if (path / MANIFEST).is_file())
    if not there:
        raise errors.InvalidValue("--goldens", str(root), f"a folder of goldens: none in it has a {MANIFEST}")
    if (root / key).is_dir():
        read_manifest(root / key)  # goldens of this machine that nothing describes are no answer
    if not comparable(root):
        out.line(f"{NOT_COMPARABLE}: this machine is {key} with mlx {machine().mlx}; goldens are for {there}")
        out.document({"ok": True, "status": NOT_COMPARABLE, "machine": key, "recorded": there})
        return 0
    with progress_callback() as progress:
        results = verify_goldens(root, progress=progress)
    for result in results:
        difference = result.engine_difference or result.oracle_difference
        detail = f"  {difference.tensor} at {difference.position}: {difference.why}" if difference else ""
        out.line(f"{result.name:<48} engine {result.engine:<10} oracle {result.oracle}{detail}")
    ok = all(result.ok for result in results)
    out.line(f"{len(results)} goldens: {sum(r.ok for r in results)} as recorded")
    rows = [result.as_dict() for result in results]
    out.document({"ok": ok, "status": "compared", "machine": key, "goldens": rows})
    return 0 if ok else 1
