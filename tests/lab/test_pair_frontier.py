"""Row 6: a candidate that pays for its gain is judged beside its base, and the run comes to a decision by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import Lab, make_lab
from lab_fakes import gate_that_says
from test_stability import sample

from lab.config import compose
from lab.fidelity import FidelityRun
from lab.measure import QuadResult, Sample
from lab.pair_frontier import p_on_frontier, stands
from oracles.contract import StackConfig


def gate(kl: float) -> list[FidelityRun]:
    arm = StackConfig(stack="engine", model="x")
    return gate_that_says("PASS", kl=kl)(compose("kv8"), Path("x"), arm, arm, lambda *_: None)


def quads(speed: float, peak: int, launches: int = 8) -> list[QuadResult]:
    """Two quads a launch; the candidate has `speed` times the decode speed, and this peak to the base's 1,000."""
    found = []
    for block in range(2 * launches):
        rows: list[Sample] = []
        for position, role in enumerate(("base", "candidate", "candidate", "base")):
            rate = 10 * (1 + 0.01 * ((block * 7 + position * 3) % 5)) * (speed if role == "candidate" else 1)
            one = sample("ab", role, block // 2, block, position, "ABBA", rate)
            rows.append(replace(one, decode_tok_s=rate, peak_bytes=peak if role == "candidate" else 1000))
        found.append(QuadResult(block // 2, block, tuple(rows), ""))
    return found


@pytest.mark.parametrize(
    ("speed", "peak", "kl", "on"),
    [
        (0.7, 800, 1e-2, True),  # slower and smaller
        (0.7, 1000, 1e-2, False),  # slower for nothing
        (0.7, 995, 1e-2, False),  # half a percent smaller, which is within eps
        (1.0, 1000, 1e-5, True),  # as its base
        (1.3, 1200, 0.0, True),  # faster and larger
    ],
)
def test_who_stands_beside_its_base(speed: float, peak: int, kl: float, on: bool) -> None:
    assert stands(p_on_frontier(quads(speed, peak), 2, gate(kl))) is on


def test_too_little_is_not_known() -> None:
    assert p_on_frontier(quads(0.7, 800, launches=1), 2, gate(0.0)) is None
    assert p_on_frontier(quads(0.7, 800), 2, []) is None
    assert stands(None) is None


def test_a_run_that_is_slower_for_nothing_is_deleted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lever of ours whose counted gain costs speed: before, it stayed "undecided: frontier" until it expired."""
    lab: Lab = make_lab(tmp_path, monkeypatch)
    lab.world.speed["kv8"] = 7.0
    words = ("experiment.kind=ours", "experiment.guardrails=[decode_tok_s]", f"experiment.targets=[{lab.world.key}]")
    result = lab.run("kv8", *words)
    assert (result.row, result.verdict) == ("6", "delete: a guardrail is worse (counted)")
    assert any(reason.startswith("frontier of both arms: P 0.00") for reason in result.reasons)
