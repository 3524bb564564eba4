"""The gate at each of its borders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine import errors
from evals.bootstrap import Interval
from evals.gate import CLASSES, LeverNotApplied, gate, require_full_share
from evals.kl import score_positions
from evals.report import Floor, KLReport, kl_report
from oracles.contract import SchemeNotLive

ABOVE, BELOW = np.inf, -np.inf


def point(value: float) -> Interval:
    return Interval(value, value, value)


LOGITS = np.random.default_rng(0).normal(size=(32, 30)).astype(np.float32)
PERFECT = kl_report([score_positions(LOGITS, LOGITS, np.zeros(32, dtype=int))] * 16, total=512)


def next_to(value: float, direction: float) -> float:
    return float(np.nextafter(value, direction))


@pytest.mark.parametrize("name", CLASSES)
def test_an_arm_that_changes_nothing_passes_every_class_and_may_be_default(name: str) -> None:
    found = gate(PERFECT, name)
    assert found.status == "PASS"
    assert found.may_be_default
    assert len(found.reasons) == len(found.checks)


# class, field, the last value that passes, the first that does not, its status
BORDERS = [
    ("L", "kl", 1e-4, ABOVE),
    ("L", "kl_p999", 5e-3, ABOVE),
    ("L", "kl_max", 0.05, ABOVE),
    ("L", "top1", 0.995, BELOW),
    ("Q8", "kl", 2e-3, ABOVE),
    ("Q8", "kl_p999", 0.05, ABOVE),
    ("Q8", "top1", 0.975, BELOW),
    ("Q8", "ln_ppl_ratio", 0.002, ABOVE),
    ("Q8", "ln_ppl_ratio", -0.002, BELOW),
    ("QT", "kl", 3.5e-2, ABOVE),
]


@pytest.mark.parametrize(("name", "field", "limit", "direction"), BORDERS)
def test_the_limit_itself_passes_and_the_next_number_fails(
    name: str, field: str, limit: float, direction: float
) -> None:
    def report(value: float) -> KLReport:
        return replace(PERFECT, **{field: value if field in ("kl_p999", "kl_max") else point(value)})

    assert gate(report(limit), name).status == "PASS"
    failed = gate(report(next_to(limit, direction)), name)
    assert failed.status == "FAIL"
    assert len(failed.reasons) == 1
    assert not failed.may_be_default


@pytest.mark.parametrize(("name", "field", "limit", "direction"), [b for b in BORDERS if b[1][:3] not in ("kl_",)])
def test_an_interval_over_the_limit_is_undecided(name: str, field: str, limit: float, direction: float) -> None:
    ends = sorted((next_to(limit, ABOVE), next_to(limit, BELOW)))
    found = gate(replace(PERFECT, **{field: Interval(limit, *ends)}), name)
    assert found.status == "UNDECIDED"
    assert not found.may_be_default
    assert len(found.reasons) == 1


def test_the_upper_bound_must_pass_and_not_the_estimate() -> None:
    assert gate(replace(PERFECT, kl=Interval(1e-3, 5e-4, 2e-3)), "Q8").status == "PASS"
    assert gate(replace(PERFECT, kl=Interval(1e-3, 5e-4, 2.1e-3)), "Q8").status == "UNDECIDED"
    assert gate(replace(PERFECT, kl=Interval(3e-3, 2e-3, 4e-3)), "Q8").status == "UNDECIDED"
    assert gate(replace(PERFECT, kl=Interval(3e-3, 2.1e-3, 4e-3)), "Q8").status == "FAIL"


def test_a_ratio_wider_than_its_limits_on_both_sides_is_undecided() -> None:
    assert gate(replace(PERFECT, ln_ppl_ratio=Interval(0.0, -0.01, 0.01)), "Q8").status == "UNDECIDED"


def test_a_quality_trade_has_two_limits() -> None:
    for high, default in ((1e-2, True), (next_to(1e-2, ABOVE), False), (3.5e-2, False)):
        found = gate(replace(PERFECT, kl=Interval(5e-3, 1e-3, high)), "QT")
        assert (found.status, found.may_be_default) == ("PASS", default)
        assert found.grade == ("PASS" if default else "WARN")
        assert ("opt-in only: the mean's upper bound is over 0.01" in found.words) == (not default)
    # It judges nothing else.
    worse = replace(PERFECT, kl_max=9.0, kl_p999=9.0, top1=point(0.1), ln_ppl_ratio=point(1.0), flips=99)
    assert gate(worse, "QT").status == "PASS"


def test_class_l_allows_ties_only_and_raises_its_limits_to_twice_the_floor() -> None:
    assert gate(replace(PERFECT, top1_changes=2, flips=0, flip_gap_max=0.1), "L").status == "PASS"
    assert gate(replace(PERFECT, top1_changes=1, flips=1, flip_gap_max=0.11), "L").status == "FAIL"
    floor = Floor(kl_mean=1e-3, kl_p999=0.01, kl_max=0.2, sequences=4, positions=128)
    noisy = replace(PERFECT, kl=point(2e-3), kl_p999=0.02, kl_max=0.4)
    assert gate(noisy, "L").status == "FAIL"
    assert gate(replace(noisy, floor=floor), "L").status == "PASS"
    for field, value in (("kl", point(2.1e-3)), ("kl_p999", 0.021), ("kl_max", 0.41)):
        found = gate(replace(noisy, floor=floor, **{field: value}), "L")
        assert found.status == "FAIL"
        assert len(found.reasons) == 1
    quiet = Floor(0.0, 0.0, 0.0, 4, 128)
    assert gate(replace(PERFECT, kl=point(1e-4), floor=quiet), "L").status == "PASS"
    assert gate(replace(PERFECT, kl=point(3e-3), floor=replace(floor, kl_mean=1.0)), "Q8").status == "FAIL"  # L only


@pytest.mark.parametrize("size", [{"sequences": 15}, {"counted": 511, "total": 511}])
def test_little_text_cannot_pass_but_can_fail(size: dict[str, int]) -> None:
    small = replace(PERFECT, **size)
    found = gate(small, "QT")
    assert found.status == "UNDECIDED"
    assert "a pass needs 16 and 512" in found.reasons[0]
    assert found.words.startswith("WARN, undecided; size: ")
    failed = gate(replace(small, kl=point(0.2)), "QT")
    assert (failed.status, failed.grade) == ("FAIL", "FAIL")
    assert failed.words == "FAIL; mean KL: 0.2 (0.2 to 0.2), limit 0.035"


def test_without_an_interval_nothing_is_decided() -> None:
    one = replace(PERFECT, sequences=1, kl=Interval(5.0, None, None))
    assert gate(one, "QT").status == "UNDECIDED"


@pytest.mark.parametrize(("counted", "total"), [(511, 512), (0, 512), (0, 0), (513, 512)])
def test_a_share_other_than_all_is_invalid(counted: int, total: int) -> None:
    with pytest.raises(LeverNotApplied, match=rf"lever not applied: {counted} of {total} .*attended engine kv4"):
        gate(replace(PERFECT, counted=counted, total=total), "QT", lever="engine kv4")
    with pytest.raises(SchemeNotLive):
        require_full_share(counted, total, "x")


def test_an_unknown_class_names_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="known: L, Q8, QT"):
        gate(PERFECT, "Q4")
