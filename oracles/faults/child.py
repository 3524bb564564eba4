"""Runs one fault's probe: `python -m oracles.faults.child <name> <model folder>`; one JSON line on stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from engine import use_blas
from oracles.faults import load_fault


def main() -> int:
    use_blas("bundled")
    print(json.dumps(asdict(load_fault(sys.argv[1]).probe(sys.argv[2]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
