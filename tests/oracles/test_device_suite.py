"""The cells of the device suite: shares make the whole, and each mode has its judge."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from engine import errors
from lab.commands.parity import part_of
from oracles import device_suite
from oracles.contract import BatchProbe, Trace
from oracles.device_suite import QUICK, ROWS, SOLO, device_cells
from oracles.parity import LAB, Cell, _apart, _unsteady


class Builder:
    """Builds nothing."""

    def __init__(self, _config: object) -> None:
        pass

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def make(self, recipe: object, form: object) -> Path:
        return Path(f"{recipe.config['model_type']}-{form}")  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_suite, "Worker", Builder)
    monkeypatch.setattr(device_suite, "packed_caches", lambda _name, _form: [])


def test_the_shares_are_the_whole_and_keep_each_form_of_a_model_together() -> None:
    whole = device_cells(quick=False)
    shares = [device_cells(quick=False, part=(i, 5)) for i in range(1, 6)]
    assert sorted(map(repr, whole)) == sorted(repr(cell) for share in shares for cell in share)
    groups = [{(cell.name.split(" ")[0], cell.dtype) for cell in share} for share in shares]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 2 * len(SOLO)
    assert {cell.name.split(" ")[0] for cell in device_cells(quick=True)} == set(QUICK)


def test_every_mode_has_its_judge() -> None:
    batches = [cell for cell in device_cells(quick=False) if isinstance(cell.probe, BatchProbe)]
    judged = {
        (dict(cell.levers)["batch_mode"], cell.reference, cell.probe.judge)  # type: ignore[union-attr]
        for cell in batches
    }
    assert judged == {("invariant", "mlx-lm", "plain"), ("composition", "mlx-lm", "batch"), ("fast", LAB, "plain")}
    assert {cell.name.split(" ")[0] for cell in batches} == set(ROWS)
    staggered = [cell for cell in batches if len(set(cell.probe.joins)) > 1]  # type: ignore[union-attr]
    assert {dict(cell.levers)["batch_mode"] for cell in staggered} == {"invariant", "composition", "fast"}
    engine, oracle = batches[0].configs("bundled")
    assert dict(engine.levers)
    assert not oracle.levers


def test_what_judges_is_said_where_the_oracle_s_batch_is_off_itself() -> None:
    cell = next(c for c in device_cells(quick=True) if "composition" in c.name)
    plain = next(c for c in device_cells(quick=True) if "invariant" in c.name)
    trace = Trace({}, {"stack": "mlx-lm", "apart": {"row.1": 0.5}})
    assert "compared with the batch" in _apart(cell, trace)
    assert "which the rows are compared with" in _apart(plain, trace)
    assert _apart(cell, Trace({}, {"stack": "mlx-lm"})) == ""


class Asked:
    """A reference that answers with what comes next."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def ask(self, _probe: object) -> bool:
        return True

    def answer(self) -> Trace:
        return Trace({"logits": mx.array([self.values.pop(0)])}, {"stack": "mlx-lm"})


def test_a_reference_that_differs_from_itself_judges_nobody() -> None:
    cell = device_cells(quick=True)[0]
    first = Trace({"logits": mx.array([1.0])}, {"stack": "mlx-lm"})
    assert _unsteady(cell, (None, Asked([1.0])), first) == ""  # type: ignore[arg-type]
    found = _unsteady(cell, (None, Asked([3.0])), first)  # type: ignore[arg-type]
    assert found == "mlx-lm gives other values when it is asked again (logits, max |diff| 2): it cannot judge"


def test_a_judge_and_a_part_that_are_not_there_are_refused() -> None:
    with pytest.raises(errors.InvalidValue, match="judge"):
        BatchProbe(rows=((1, 2),), joins=(0,), limits=(2,), judge="nobody")
    assert part_of(None) == (1, 1)
    assert part_of("3/8") == (3, 8)
    for text in ("0/3", "4/3", "1", "a/b", "1/"):
        with pytest.raises(errors.InvalidValue, match="--part"):
            part_of(text)


def test_cells_state_their_levers() -> None:
    cell: Cell = next(c for c in device_cells(quick=True) if c.levers)
    assert cell.config("bundled").levers == cell.levers
