"""The stability gate: each check by itself, on simulated samples, with the number on either side of its limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lab.config import LabConf, LookConf, MachineConf, ProfileConf, ThresholdsConf
from lab.design import Plan, make_plan, session_seed
from lab.measure import Sample, group_quads
from lab.stability import Cell, Session, is_steady, judge_cell

LOOKS = (16, 32)
METRIC = "decode_tok_s"
SENSOR = {"name": "thermal", "value": 0.0, "limit": 0.0, "status": "ok", "when": "preflight"}


def conf(**machine: object) -> LabConf:
    quiet = {"name": "quiet", "delta": 0.02, "guardrail_margin": 0.02, "sd_limit": 0.015, "sample_s": 1.0}
    quiet |= {"steady_limit": 0.03, "thirds_limit": 0.03, "thirds_decide": True, "steal_limit": 0.01}
    quiet |= {"clock_limit": 0.03}
    found = LabConf(
        model="m",
        profile=ProfileConf(aa_quads=16, quads_per_launch=2, steady_window=5, steady_cap=30),
        machine=MachineConf(**(quiet | machine)),
        thresholds=ThresholdsConf(aa_p=0.05, outlier_sd=10, outlier_share=0.05, counted_spread=0.01),
    )
    found.profile.looks = [LookConf(16, 0.005), LookConf(32, 0.0175)]
    return found


PLANS: dict[str, Plan] = {part: make_plan(session_seed("x", "s", part), 16, 2) for part in ("aa", "ab")}


def samples(
    part: str, noise: float, seed: int, speed: Callable[[int, str], float] = lambda _i, _r: 10.0
) -> list[Sample]:
    """The samples of a part in the order of its plan. speed: number of the sample, role -> tok/s before noise."""
    rng = np.random.Generator(np.random.PCG64(seed))
    taken: list[Sample] = []
    for launch in PLANS[part].launches:
        for quad in launch.quads:
            for position, role in enumerate(quad.roles):
                rate = speed(len(taken), role) * float(np.exp(rng.normal(0, noise)))
                taken.append(sample(part, role, launch.number, quad.block, position, quad.order, rate))
    return taken


def sample(part: str, role: str, launch: int, block: int, position: int, order: str, rate: float) -> Sample:
    return Sample(
        part=part, role=role, launch=launch, block=block, position=position, order=order, warm_up=part == "pilot",
        pid=1000 + 100 * (part == "aa") + 2 * launch + (role == "base"), process_started=float(launch), t0=0.0, t1=3.0,
        prompt_tokens=4, decode_tokens=16, cache_tokens=20, decode_tok_s=rate, prefill_tok_s=80.0, ttft_ms=50.0,
        peak_bytes=100, rss_bytes=100, kv_bytes=100, lever="native", load1=0.1, steal=0.0, valid=True, why="",
    )  # fmt: skip


WARM = [sample("pilot", "base", 0, -1, i, "", 10.0) for i in range(12)]


CLOCKS = (3000.0, 3001.0, 3002.0)


def session(aa: list[Sample] | None = None, ab: list[Sample] | None = None, **more: object) -> Session:
    aa = samples("aa", 0.004, 1) if aa is None else aa
    ab = samples("ab", 0.004, 2) if ab is None else ab
    kept: dict[str, object] = {"warm": WARM, "sensors": [SENSOR], "plans": PLANS, "clocks": CLOCKS} | more
    return Session(aa=group_quads(aa, "aa"), ab=group_quads(ab, "ab"), **kept)


def cell(of: Session, metric: str = METRIC, delta: float = 0.02, **machine: object) -> Cell:
    return judge_cell(conf(**machine), of, metric, delta)


def test_a_quiet_session_is_stable() -> None:
    found = cell(session())
    assert (found.state, found.reasons, found.notes, found.valid) == ("stable", (), (), True)


def test_an_a_a_that_differs() -> None:
    found = cell(session(aa=samples("aa", 0.002, 1, lambda _i, role: 10.2 if role == "candidate" else 10.0)))
    assert "A/A differs: two-sided p 0.008, at most 0.05" in found.reasons
    assert not found.valid


def test_a_wide_a_a_lacks_precision_only() -> None:
    found = cell(session(aa=samples("aa", 0.04, 3)), sd_limit=0.1)
    assert [reason.split(" %")[0][:20] for reason in found.reasons] == ["A/A: interval half-w", "A/A: MDE at 32 quads"]
    assert found.state == "unstable"
    assert found.valid
    assert cell(session(aa=samples("aa", 0.04, 3)), delta=0.10, sd_limit=0.1).state == "stable"


def test_the_limits_of_the_class_hold_for_the_sd() -> None:
    aa = samples("aa", 0.04, 3)
    assert any(reason.startswith("A/A: sd") for reason in cell(session(aa=aa), delta=0.5).reasons)
    assert cell(session(aa=aa), delta=0.5, sd_limit=0.12).state == "stable"


def test_too_few_launches_and_equal_numbers_are_never_stable() -> None:
    assert cell(session(aa=samples("aa", 0.004, 1)[:8])).reasons == ("A/A: 1 whole launch, at least 2 are needed",)
    assert any("same number" in reason for reason in cell(session(aa=samples("aa", 0.0, 1))).reasons)


def test_neighbours_that_remember_each_other() -> None:
    """A gain that swings from launch to launch: the launches alternate."""
    aa = samples("aa", 0.0005, 1, lambda i, role: 10.0 * (1.004 if (i // 8) % 2 == (role == "base") else 1.0))
    assert any("lag-1 -0" in reason for reason in cell(session(aa=aa)).reasons)


def test_a_baseline_that_moves_is_a_reason_or_a_note() -> None:
    ab = samples("ab", 0.004, 2, lambda i, _role: 10.0 * 0.95 ** (i // 22))
    assert any("last third differs from its first by" in reason for reason in cell(session(ab=ab)).reasons)
    shared = cell(session(ab=ab), thirds_decide=False)
    assert shared.state == "stable"
    assert any("last third" in note for note in shared.notes)


def test_outliers_are_counted_against_a_robust_sd() -> None:
    def spikes(every: int) -> list[Sample]:
        return samples("ab", 0.004, 2, lambda i, _role: 5.0 if i % every == 0 else 10.0)

    assert any("samples beyond 10 robust sd: 6.2 %" in r for r in cell(session(ab=spikes(8))).reasons)
    assert not any("robust sd" in reason for reason in cell(session(ab=spikes(20))).reasons)


def test_steal_and_heat() -> None:
    stolen = [replace(s, steal=0.02) for s in samples("ab", 0.004, 2)]
    aa = [replace(s, steal=0.001) for s in samples("aa", 0.004, 1)]
    assert "steal during the samples 1.05 %, above 1.00 %" in cell(session(aa=aa, ab=stolen)).reasons
    for name in ("thermal", "load per core"):
        hot = SENSOR | {"name": name, "value": 2.0, "status": "dirty", "when": "postflight"}
        assert cell(session(sensors=[hot])).reasons == (f"postflight: {name} 2, limit 0",)
        assert (cell(session(sensors=[hot]), name="shared").state == "stable") is (name == "load per core")


def test_what_cannot_be_read_is_said_and_never_taken_for_good() -> None:
    blind = [SENSOR | {"name": name, "value": None, "status": "not judged"} for name in ("thermal",)]
    dark = [[replace(s, steal=None) for s in samples(part, 0.004, 1)] for part in ("aa", "ab")]
    found = cell(session(dark[0], dark[1], sensors=blind, clocks=()))
    assert found.state == "stable"
    assert set(found.notes) == {
        "steal during the samples not judged: this machine does not report it",
        "not judged (this machine does not report it): thermal",
        "clocks not judged: this machine does not report it",
    }


def test_the_steady_state() -> None:
    assert not is_steady([3.0] * 11, 5, 0.03)
    assert is_steady([9.0, 9.0] + [3.0] * 10, 5, 0.03)
    assert not is_steady([3.0] * 7 + [3.2] * 5, 5, 0.03)
    rising = [replace(s, t1=3.0 + i) for i, s in enumerate(WARM)]
    assert any("no steady state" in reason for reason in cell(session(warm=rising)).reasons)
    none = conf()
    none.profile.steady_window = 0
    found = judge_cell(none, session(warm=WARM[:2]), METRIC, 0.02)
    assert (found.state, found.notes) == ("stable", ("steady state not judged: the profile has no test of it",))


def test_a_counted_metric_needs_equal_counts_and_no_clock() -> None:
    hot = SENSOR | {"value": 2.0, "status": "dirty"}
    assert cell(session(aa=samples("aa", 0.5, 1), sensors=[hot], warm=[]), "kv_bytes").state == "stable"
    within = [replace(s, kv_bytes=100 + 2 * (s.position < 2)) for s in samples("ab", 0.004, 2)]
    assert cell(session(ab=within), "kv_bytes").state == "stable"  # the most that a process held is what it needs
    uneven = [replace(s, kv_bytes=100 + 2 * (s.launch % 2)) for s in samples("ab", 0.004, 2)]
    assert cell(session(ab=uneven), "kv_bytes").reasons == ("A/B: spread of the counts 1.96 %, above 1.00 %",)
    other = [replace(s, kv_bytes=102 if s.role == "candidate" else 100) for s in samples("aa", 0.004, 1)]
    assert cell(session(aa=other), "kv_bytes").reasons == ("A/A: the counts differ by 1.96 %, above 1.00 %",)


@pytest.mark.parametrize("metric", [METRIC, "kv_bytes"])
def test_rows_of_another_protocol_are_found(metric: str) -> None:
    """Fixed orders, and processes that outlive their launch, are in the rows."""
    ab = samples("ab", 0.004, 2)
    fixed = [replace(s, order="ABBA") for s in ab]
    assert any("is not the coin's" in reason for reason in cell(session(ab=fixed), metric).reasons)
    kept = [replace(s, pid=1 + (s.role == "base"), process_started=0.0) for s in ab]
    assert "no relaunch: ab launch 1 and ab launch 2 share process" in cell(session(ab=kept), metric).reasons[0]


@pytest.mark.parametrize(
    ("mhz", "reasons", "notes"),
    [
        ((3000.0, 3010.0, 2990.0, 3001.0, 3002.0, 3003.0), (), ()),
        ((3000.0, 3000.0, 2950.0, 2900.0, 2700.0, 2700.0), ("clocks of thirds differ by 11.1 %, above 3.0 %",), ()),
        ((2445.0,) * 9, (), ("clocks: always 2445 MHz, which may be a nominal one: no slowdown would show",)),
        ((3000.0, 3000.0), (), ("clocks not judged: this machine does not report it",)),
    ],
)
def test_clocks_are_judged_over_the_session(
    mhz: tuple[float, ...], reasons: tuple[str, ...], notes: tuple[str, ...]
) -> None:
    """Catches a limit of the clock that judges nothing, and a constant one that is taken for a proof."""
    found = cell(replace(session(), clocks=mhz))
    assert found.reasons == reasons
    assert tuple(note for note in found.notes if "clocks" in note) == notes
