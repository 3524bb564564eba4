"""Verdicts on the noise of a real machine: recorded A/A quads, into which effects are planted.

`data/quads.json` was recorded by `python tests/lab/record_quads.py tests/lab/data/quads.json` on a machine of two cores
with a dozen other processes on them, and nothing was left out: equal arms differ by half in a launch there, and no
verdict may come of that. For the verdicts each speed is moved to its part's median by nine tenths in logs: the bursts,
tails and memory are those of the machine, their size that of a calmer one. An effect is planted into the candidate's
samples of the second part; the first part is the session's A/A.
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_fakes import gate_that_says
from record_quads import PARTS, seed_of
from test_stability import sample

from lab.config import LabConf, compose
from lab.design import make_plan
from lab.measure import Sample, full_launches, group_quads
from lab.stability import Session
from lab.stats import launch_means, mean_sd
from lab.verdict import History, Judged, Measured, judge_experiment
from oracles.contract import StackConfig

RECORDED = json.loads((Path(__file__).parent / "data" / "quads.json").read_text(encoding="utf-8"))
SCALE = 0.1
TODAY = date(2026, 12, 1)
WORDS = ("experiment.primary=decode_tok_s", "experiment.guardrails=[]", "experiment.delta=null", "experiment.kind=ours")
WORDS += ("profile.looks=[{quads: 16, alpha: 0.0175}]", "profile.steady_window=0")


def conf() -> LabConf:
    """A timed experiment of one target, whose only look is at all that was recorded."""
    return compose("kv8", WORDS)


def samples(part: str, scale: float = SCALE) -> list[Sample]:
    """The samples of a part, what is off their median scaled in logs (1: as they were taken); steal is the recording
    machine's own matter."""
    found: list[Sample] = []
    for row in RECORDED[part]:
        values: dict[str, Any] = dict(zip(RECORDED["columns"], row, strict=True)) | {"steal": None}
        found.append(replace(sample(part, "base", 0, 0, 0, "ABBA", 1.0), **values))
    centre = statistics.median(s.decode_tok_s for s in found)
    return [replace(s, decode_tok_s=centre * (s.decode_tok_s / centre) ** scale) for s in found]


def planted(factor: float, scale: float = SCALE) -> list[Sample]:
    """The second part, its candidate `factor` times as fast."""
    return [
        replace(s, decode_tok_s=s.decode_tok_s * factor) if s.role == "candidate" else s for s in samples("ab", scale)
    ]


def judged(ab: list[Sample], *, gate: str = "PASS", machine: str = "shared", aa: list[Sample] | None = None) -> Judged:
    of = conf()
    of.machine = compose("kv8", (*WORDS, f"machine={machine}")).machine
    arm = StackConfig(stack="engine", model="x")
    fidelity = gate_that_says(gate)(of, Path("x"), arm, arm, lambda *_: None)
    session = Session(
        aa=group_quads(samples("aa") if aa is None else aa, "aa"),
        ab=group_quads(ab, "ab"),
        warm=(),
        sensors=(),
        plans={part: make_plan(seed_of(part), quads, 2) for part, quads in PARTS},
    )
    measured = Measured(
        uid="recorded", machine_key="x", conf=of, session=session, stopped="looks", aa_from="", fidelity=tuple(fidelity)
    )
    return judge_experiment(measured, (), History(1, 0, TODAY, date(2026, 12, 29), True))


def test_the_recording_is_whole_and_followed_its_coins() -> None:
    """Every quad of the plan is there with four samples in the coin's order, new processes in each launch."""
    for part, quads in PARTS:
        found = group_quads(samples(part), "aa" if part == "aa" else "ab")
        plan = make_plan(seed_of(part), quads, 2)
        assert [q.samples[0].order for q in found] == [q.order for launch in plan.launches for q in launch.quads]
        assert all(quad.valid for quad in found)
        processes = {(s.launch, s.pid, s.process_started) for s in samples(part)}
        assert len(processes) == 2 * len(plan.launches)


def test_verdicts_of_planted_effects() -> None:
    """A no-op, a slowdown of 15 %, a broken KL and a gain of 30 %."""
    noop = judged(planted(1.0))
    assert (noop.decision.row, noop.decision.verdict) == ("5", "delete: inside +-delta")
    slow = judged(planted(0.85))
    assert (slow.decision.row, slow.decision.verdict) == ("7", "delete: worse")
    broken = judged(planted(1.0), gate="FAIL")
    assert (broken.decision.row, broken.decision.verdict) == ("1", "delete: gate (one repair before expiry)")
    fast = judged(planted(1.3))
    assert (fast.decision.row, fast.decision.verdict) == ("4", "confirm")


def test_nothing_is_decided_on_the_noise_as_it_was() -> None:
    """A slowdown of 15 % drowns in it; a broken KL does not depend on any clock."""
    aa = samples("aa", 1.0)
    drowned = judged(planted(0.85, 1.0), aa=aa)
    assert (drowned.decision.row, drowned.decision.verdict) == ("2", "rerun")
    assert any("A/A: sd" in reason for cell in drowned.cells for reason in cell.reasons)
    assert judged(planted(0.85, 1.0), aa=aa, gate="FAIL").decision.row == "1"


def test_a_quiet_machine_is_not_believed_on_this_noise() -> None:
    """The same quads under the limits of a quiet machine: the spread is above them, and nothing is decided."""
    result = judged(planted(0.85), machine="quiet")
    assert (result.decision.row, result.decision.verdict) == ("2", "rerun")
    assert any("A/A: sd" in reason for cell in result.cells for reason in cell.reasons)


def test_an_a_a_that_differs_decides_nothing() -> None:
    slower = [replace(s, decode_tok_s=s.decode_tok_s * 0.8) if s.role == "candidate" else s for s in samples("aa")]
    result = judged(planted(0.85), aa=slower)
    assert (result.decision.row, result.decision.verdict) == ("2", "rerun")


@pytest.mark.parametrize("keep", ["launch", "quads"])
def test_equal_arms_rarely_differ_when_labels_are_drawn_anew(keep: str) -> None:
    """Both labels of a launch exchanged or not, 2,000 times: a test at 5 % calls about one in twenty of them different.
    The quads one by one as the unit ("quads") may be off where processes have luck of their own; both are bounded."""
    launches = [means for part in ("aa", "ab") for means in full_launches(group_quads(samples(part), part), METRIC, 2)]
    values = np.array(launch_means(launches) if keep == "launch" else [y for launch in launches for y in launch])
    rng = np.random.Generator(np.random.PCG64(1))
    signs = rng.choice([-1.0, 1.0], (2000, len(values)))
    t = [abs(mean) * math.sqrt(len(values)) / sd for mean, sd in (mean_sd(list(values * s)) for s in signs)]
    from scipy import stats as scipy_stats

    share = np.mean(np.array(t) > scipy_stats.t.ppf(0.975, len(values) - 1))
    assert 0.02 < share < 0.08


METRIC = "decode_tok_s"
