"""`frontier parity` keeps what each suite said in the lab's database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from scorecard_fakes import cell_result, fingerprint

from lab import cli
from lab import fingerprint as prints
from lab.scorecard.suites import read_suites
from lab.store import Store
from oracles import batch_suite, kv_suite, matrix, parity

KEY = "linux-x86_64-cpu-bundled"


def test_every_suite_of_a_run_is_kept_with_its_own_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted breaks: cells of one suite under another, a command that repeats another run, a quick run as whole."""
    sizes = {"tiny": 2, "kv": 3, "batch": 1, "model": 2}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRONTIER_DB", raising=False)
    monkeypatch.setattr(prints, "take", lambda: fingerprint(KEY))
    cell = cell_result("equal").cell
    monkeypatch.setattr(matrix, "tiny_cells", lambda *, quick: [cell] * 2)
    monkeypatch.setattr(kv_suite, "kv_cells", lambda *, quick: [cell] * 3)
    monkeypatch.setattr(batch_suite, "batch_cells", lambda *, quick: [cell])
    monkeypatch.setattr(matrix, "model_cells", lambda model, *, quick: [cell] * 2)
    statuses = iter(["equal"] * 2 + ["equal", "Lab", "differs"] + ["equal"] * 3)

    def run_cells(cells: Sequence[Any], **_: object) -> Iterator[Any]:
        assert len(cells) == sum(sizes.values())
        return (cell_result(next(statuses)) for _ in cells)

    monkeypatch.setattr(parity, "run_cells", run_cells)
    assert cli.main(["--blas", "bundled", "parity", "--suite", "all"]) == 1
    with Store.open() as store:
        found = {suite.name: suite for suite in read_suites(store, KEY)}
    counts = {name: (suite.equal, suite.not_run, suite.faulty) for name, suite in found.items() if suite.at}
    assert counts == {"tiny": (2, 0, 0), "kv": (1, 1, 1), "batch": (1, 0, 0), "model": (2, 0, 0)}
    assert found["kv"].command == "frontier parity --suite kv --blas bundled"
    assert found["model"].command == "frontier parity --model smollm2-135m-instruct --blas bundled"
