"""The plan and its execution: coins, relaunches, order, validity, what is recorded and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab_fakes import Machine

from engine import errors
from lab import measure, sensors
from lab.design import make_plan, session_seed
from lab.measure import Bench, LeverNotApplied, Sample, full_launches, group_quads
from oracles.contract import OracleCrashed, StackConfig, TimeProbe

READING = sensors.Reading(at=0, load1=0.1, steal_s=None, cpu_s=None, swap_in_bytes=0, free_bytes=2**34)
PLAN = make_plan(session_seed("kv8", "s", "ab"), 4, 2)


def bench(machine: Machine, kept: list[Sample]) -> Bench:
    return Bench(
        arms={
            "base": StackConfig(stack="engine", model="m"),
            "candidate": StackConfig(stack="engine", model="m", kv="kv8"),
        },
        probe=TimeProbe(token_ids=(1, 2, 3, 4), max_tokens=17),
        start=machine.start,
        record=kept.append,
        tick=lambda _what: None,
        inspect=lambda _role, _trace: None,
        read_sensors=lambda: READING,
        clock=machine.clock,
    )


def test_plans_are_made_again_from_their_seed_and_differ_by_session() -> None:
    assert make_plan(PLAN.seed, 4, 2) == PLAN
    many = [make_plan(session_seed("kv8", f"s{i}", "ab"), 32, 2) for i in range(40)]
    orders = Counter(quad.order for plan in many for launch in plan.launches for quad in launch.quads)
    starts = Counter(launch.start_order[0] for plan in many for launch in plan.launches)
    assert orders.keys() == {"ABBA", "BAAB"}
    # 1280 and 640 fair coins: five sd.
    assert abs(orders["ABBA"] - 640) < 5 * 18
    assert abs(starts["base"] - 320) < 5 * 13
    assert session_seed("kv8", "s", "aa") != session_seed("kv8", "s", "ab")


@pytest.mark.parametrize(("quads", "per_launch"), [(0, 2), (3, 2), (4, 0)])
def test_a_plan_of_part_launches_is_refused(quads: int, per_launch: int) -> None:
    with pytest.raises(errors.InvalidValue):
        make_plan(1, quads, per_launch)


def test_each_launch_has_new_processes_and_a_discarded_sample_each() -> None:
    machine, kept = Machine("m"), []
    result = bench(machine, kept).part("ab", PLAN, discard=1)
    assert result.stopped == "looks"
    assert machine.open == 0
    assert len(kept) == 2 * (2 + 8)
    pids = [{s.pid for s in kept if s.launch == n and s.role == role} for n in (0, 1) for role in ("base", "candidate")]
    assert [len(p) for p in pids] == [1] * 4
    assert len(set.union(*pids)) == 4
    for n in (0, 1):
        first = [s for s in kept if s.launch == n][:2]
        assert [s.warm_up for s in first] == [True, True]
        assert [s.role for s in first] == list(PLAN.launches[n].start_order)
    taken = [s for s in kept if not s.warm_up]
    assert [s.role for s in taken] == [role for launch in PLAN.launches for quad in launch.quads for role in quad.roles]
    assert {s.lever for s in taken if s.role == "candidate"} == {"affine8:g64"}


def test_samples_are_handed_out_as_they_are_taken() -> None:
    machine, kept = Machine("m"), []
    machine.crash_at = 6
    with pytest.raises(OracleCrashed):
        bench(machine, kept).part("ab", PLAN, discard=1)
    assert len(kept) == 5
    assert machine.open == 0


def test_a_lever_that_never_comes_on_ends_the_run() -> None:
    machine, kept = Machine("m"), []
    machine.off = {"kv8"}
    with pytest.raises(LeverNotApplied, match="lever not applied"):
        bench(machine, kept).part("ab", PLAN, discard=1)
    assert machine.open == 0
    assert [s.valid for s in kept].count(False) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"decode_tokens": 15}, "decode_tokens differ: 15, 16"),
        ({"prompt_tokens": 5}, "prompt of 5 tokens instead of 4"),
        ({"caches": [{"scheme": "affine4:g64", "offset": 21}]}, "lever not applied"),
    ],
)
def test_a_broken_sample_makes_its_quad_invalid_and_its_launch_incomplete(change: dict[str, object], why: str) -> None:
    machine, kept = Machine("m"), []
    machine.broken = {5: change}  # the third sample of the first quad
    quads = list(bench(machine, kept).part("ab", PLAN, discard=1).quads)
    assert [q.valid for q in quads] == [False, True, True, True]
    assert why in quads[0].why
    assert [len(launch) for launch in full_launches(quads, "decode_tok_s", 2)] == [2]
    assert group_quads(kept, "ab") == quads


def test_cache_states_that_differ_are_named() -> None:
    machine, kept = Machine("m"), []
    cache = {"scheme": "native", "offset": 99}
    machine.broken = {n: {"caches": [cache]} for n in range(1, 30)}
    plan = make_plan(1, 1, 1)
    arms = {"base": StackConfig(stack="engine", model="m"), "candidate": StackConfig(stack="engine", model="m")}
    same = bench(machine, kept)
    same.arms = arms
    machine.broken[4] = {"caches": [cache | {"offset": 5}]}
    assert "cache_tokens differ: 5, 99" in same.part("aa", plan, discard=1).quads[0].why


def test_a_sample_without_a_duration_is_refused() -> None:
    machine, kept = Machine("m"), []
    machine.broken = {1: {"decode_s": 0.0}}
    with pytest.raises(errors.InvalidValue, match="decode_s"):
        bench(machine, kept).part("ab", PLAN, discard=1)


def test_the_cap_is_held_between_launches_and_a_look_stops() -> None:
    machine, kept = Machine("m"), []
    capped = bench(machine, kept).part("ab", PLAN, discard=1, deadline=machine.now + 40)
    assert (capped.stopped, len(capped.quads)) == ("time", 2)
    seen: list[int] = []

    def look(quads: list[measure.QuadResult]) -> bool:
        seen.append(len(quads))
        return True

    assert bench(machine, kept).part("ab", PLAN, discard=1, at_look=look).stopped == "look"
    assert seen == [2]


def test_y_is_positive_when_the_candidate_is_better() -> None:
    machine, kept = Machine("m", {"kv8": 12.0}, noise=0.0), []
    quads = bench(machine, kept).part("ab", PLAN, discard=1).quads
    assert all(q.y("decode_tok_s") > 0.18 for q in quads)
    assert all(q.y("ttft_ms") > 0.18 for q in quads)
    assert all(q.y("kv_bytes") > 1.2 for q in quads)


class Limits:
    steal_limit, load_per_core, free_bytes = 0.01, 0.25, 2**31


def test_sensors_say_dirty_and_not_judged() -> None:
    before = sensors.Reading(at=0, load1=3.0, steal_s=1.0, cpu_s=100.0, swap_in_bytes=0, free_bytes=2**32)
    after = sensors.Reading(at=1, load1=3.0, steal_s=1.5, cpu_s=110.0, swap_in_bytes=4096, free_bytes=2**30)
    before, after = replace(before, throttles=7), replace(after, throttles=8)
    assert [s.status for s in sensors.judge(before, after, Limits(), cores=2)] == ["dirty"] * 5
    blind = sensors.Reading(at=1, load1=None, steal_s=None, cpu_s=None, swap_in_bytes=None, free_bytes=None)
    found = sensors.judge(blind, blind, Limits(), cores=2)
    assert [s.status for s in found] == ["not judged"] * 5
    assert str(found[-1]) == "thermal not judged (this machine does not report it)"
    held_back = sensors.judge(blind, blind, Limits(), cores=2, lost=20.0)
    assert str(held_back[-1]) == "thermal 20 (dirty, limit 0)"
    assert sensors.read().free_bytes


def test_the_clock_is_that_of_the_fastest_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a clock that nobody reads, and a mean that idle cores pull down."""
    clocks = [SimpleNamespace(current=800.0), SimpleNamespace(current=3600.0)]
    monkeypatch.setattr(sensors.psutil, "cpu_freq", lambda percpu: clocks)
    assert sensors.read().clock_mhz == 3600.0
    for nothing in ([], None, [SimpleNamespace(current=0.0)]):
        monkeypatch.setattr(sensors.psutil, "cpu_freq", lambda percpu, nothing=nothing: nothing)
        assert sensors.clock_mhz() is None
    monkeypatch.delattr(sensors.psutil, "cpu_freq")
    assert sensors.clock_mhz() is None


@pytest.mark.parametrize(("therm", "lost"), [("CPU_Speed_Limit \t= 80\n", 20.0), ("No thermal warning level\n", None)])
def test_what_macos_says_of_heat(therm: str, lost: float | None) -> None:
    assert sensors.lost_of(therm) == lost


def test_throttle_counters_are_summed_and_their_absence_is_said(tmp_path: Path) -> None:
    assert sensors.throttle_count(tmp_path) is None
    for core, count in (("cpu0", 2), ("cpu11", 3)):
        folder = tmp_path / core / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{count}\n", encoding="utf-8")
    assert sensors.throttle_count(tmp_path) == 5
