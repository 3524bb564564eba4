"""Row 6: a candidate that pays for its gain is judged beside its base and the other recipes of the database, and the
run comes to a decision by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import DAY, Lab, make_lab
from lab_fakes import gate_that_says
from test_stability import sample

from lab.config import compose
from lab.deciding import decide_again, replay
from lab.fidelity import FidelityRun
from lab.measure import QuadResult, Sample
from lab.pair_frontier import Beside, Point, p_on_frontier, points_of, stands
from oracles.contract import StackConfig

COSTS_SPEED = ("experiment.guardrails=[decode_tok_s]",)


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


def points(speed: float, peak: int, kl: float) -> tuple[Point, Point]:
    found = points_of("candidate", quads(speed, peak), 2, gate(kl))
    assert found is not None
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
    base, own = points(speed, peak, kl)
    assert stands(p_on_frontier(own, [base])) is on


@pytest.mark.parametrize(
    ("speed", "peak", "kl", "on"),
    [
        (0.8, 800, 1e-2, False),  # as small, as good and faster
        (0.7, 700, 1e-2, False),  # as fast, as good and smaller
        (0.7, 795, 1e-2, True),  # half a percent smaller, which is within eps
        (0.71, 800, 1e-2, True),  # faster by less than the two intervals tell apart
        (0.8, 700, 2e-2, True),  # faster and smaller, but worse
    ],
)
def test_another_recipe_may_dominate(speed: float, peak: int, kl: float, on: bool) -> None:
    """The base is far off: judged beside it alone, each of these would stand. Planted breaks: a rival that is not
    looked at, and launches of two sessions that are paired."""
    base, own = points(0.7, 800, 1e-2)
    _, other = points(speed, peak, kl)
    noisy = tuple(x + 0.05 * (-1) ** i for i, x in enumerate(other.log_ratios[:5]))
    other = replace(other, log_ratios=noisy if speed == 0.71 else other.log_ratios[:5])
    assert stands(p_on_frontier(own, [base])) is True
    assert stands(p_on_frontier(own, [base, other])) is on
    assert stands(p_on_frontier(own, [other])) is on


def test_kl_is_compared_where_both_were_scored() -> None:
    base, own = points(0.7, 800, 1e-2)
    (scored,) = own.kl_nats
    other = replace(own, log_ratios=tuple(x + 0.2 for x in own.log_ratios), kl_nats={scored: 1e-2, "step": 1.0})
    assert stands(p_on_frontier(own, [base, other])) is False
    assert stands(p_on_frontier(replace(own, kl_nats={scored: 5e-3}), [base, other])) is True


def test_too_little_is_not_known() -> None:
    assert points_of("candidate", quads(0.7, 800, launches=1), 2, gate(0.0)) is None
    assert points_of("candidate", quads(0.7, 800), 2, []) is None
    assert stands(None) is None


def test_a_run_that_is_slower_for_nothing_is_deleted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lever of ours whose counted gain costs speed: before, it stayed "undecided: frontier" until it expired."""
    lab: Lab = make_lab(tmp_path, monkeypatch)
    lab.world.speed["kv8"] = 7.0
    words = ("experiment.kind=ours", *COSTS_SPEED, f"experiment.targets=[{lab.world.key}]")
    result = lab.run("kv8", *words)
    assert (result.row, result.verdict) == ("6", "delete: a guardrail is worse (counted)")
    assert "not on the frontier beside its base alone" in result.reasons


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two experiments beside one base: kv4 is smaller and faster than kv8/4, and its KL is the same."""
    found = make_lab(tmp_path, monkeypatch)
    found.world.speed |= {"kv8/4": 7.0, "kv4": 8.0}
    found.world.peak |= {"kv8/4": 9_000_000, "kv4": 8_000_000}
    return found


def test_a_lever_is_judged_beside_what_else_is_measured(lab: Lab) -> None:
    """Planted break: judged beside its own base alone, which is weaker, it stayed as an option."""
    lab.run("kv4", *COSTS_SPEED)
    result = lab.run("kv8_4", *COSTS_SPEED)
    assert (result.row, result.verdict) == ("6", "no gain on this machine key (counted)")
    assert "not on the frontier beside its base and 1 other recipe (kv4)" in result.reasons
    assert any(reason.startswith("frontier: P 0.00 that nobody of its base and 1 other") for reason in result.reasons)


def test_what_is_measured_later_changes_no_older_decision(lab: Lab) -> None:
    first = lab.run("kv8_4", *COSTS_SPEED)
    assert (first.row, first.verdict) == ("6", "opt-in (expiring) (counted)")
    assert "on the frontier beside its base alone" in first.reasons
    lab.run("kv4", *COSTS_SPEED)
    with lab.store() as store:
        assert [each.state for each in replay(store, "kv8_4")] == ["same"]
        decided, _ = decide_again(store, "kv8_4", DAY)
        assert decided[0].judged.facts.beside == "its base and 1 other recipe (kv4)"
        assert decided[0].judged.facts.on_frontier is False
        assert [each.state for each in replay(store, "kv8_4")] == ["same", "same"]


@pytest.mark.parametrize(
    ("words", "speed", "why"),
    [
        (("experiment.base.chunk=512", "experiment.candidate.chunk=512"), 8.0, "kv4: another base, or another model"),
        (("profile.max_tokens=65",), 8.0, "kv4: another context"),
    ],
)
def test_a_recipe_that_is_not_comparable_is_named(lab: Lab, words: tuple[str, ...], speed: float, why: str) -> None:
    lab.run("kv4", *COSTS_SPEED, *words)
    result = lab.run("kv8_4", *COSTS_SPEED)
    assert result.verdict == "opt-in (expiring) (counted)"
    assert f"not beside it: {why}" in result.reasons


def test_words() -> None:
    point = Point("kv4", (0.0, 0.0), 1.0, {})
    assert Beside((point, replace(point, name="turbo"))).words == "its base and 2 other recipes (kv4, turbo)"
    assert Beside().words == "its base alone"
