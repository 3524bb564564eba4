"""KL runs and perplexity on stand-ins: what is fed, what is scored, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from eval_fakes import SEQUENCES, FakeArm, config

from engine import errors
from evals.fidelity import FidelityResult, run_fidelity
from evals.gate import LeverNotApplied
from evals.kl import BadLogits, kl_divergence
from evals.perplexity import run_perplexity
from evals.protocol import Plan
from oracles.contract import OracleRefused, Probe, SchemeNotLive, StackConfig

NATIVE = config()
ROWS = {"step": range(12, 16), "forward": range(1, 16)}


class Started:
    """A `start` that keeps what it made. `make` builds the arm of a config."""

    def __init__(self, make: Callable[[StackConfig], FakeArm] = FakeArm) -> None:
        self.make, self.arms = make, []  # type: ignore[var-annotated]

    def __call__(self, config: StackConfig) -> FakeArm:
        self.arms.append(self.make(config))
        return self.arms[-1]  # type: ignore[no-any-return]


def fidelity(*names: str, start: Callable[[StackConfig], FakeArm] = FakeArm, **options: object) -> list[FidelityResult]:
    arms = [config(name) for name in names]
    return run_fidelity(NATIVE, arms, SEQUENCES, tail=4, start=start, **options)  # type: ignore[arg-type]


def logits(arm: StackConfig, ids: list[int], protocol: str) -> np.ndarray:
    fake = FakeArm(arm)
    fake.wait_ready()
    trace = fake.probe(Plan(protocol, 16, 4).probe(ids[:16]))
    return np.array(trace.tensors["logits"])[ROWS[protocol].start :]


@pytest.mark.parametrize("protocol", ["step", "forward"])
def test_kl_is_that_of_the_scored_rows_of_both_arms(protocol: str) -> None:
    results = fidelity("kv8", "kv4", protocol=protocol)
    for result in results:
        slow = [
            kl_divergence(logits(NATIVE, ids, protocol), logits(result.candidate, ids, protocol)) for ids in SEQUENCES
        ]
        assert result.report.kl.value == pytest.approx(np.concatenate(slow).mean(), rel=1e-13)
        assert result.report.counted == result.report.total == 6 * len(ROWS[protocol])
        nll = np.concatenate([_nll(logits(result.candidate, ids, protocol), ids, protocol) for ids in SEQUENCES])
        assert result.report.candidate_perplexity.value == pytest.approx(math.exp(nll.mean()), rel=1e-12)
    assert 0 < results[0].report.kl.value < results[1].report.kl.value
    assert [r.candidate_live for r in results] == ["affine8:g64", "affine4:g64"]
    assert results[0].candidate_kv_bytes == 30


def _nll(rows: np.ndarray, ids: list[int], protocol: str) -> np.ndarray:
    wide = rows.astype(float)
    log_p = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return np.array([-log_p[i, ids[j + 1]] for i, j in enumerate(ROWS[protocol])])


def test_what_each_protocol_feeds() -> None:
    ids = tuple(range(16))
    assert Plan("step", 16, 4).probe(ids) == Probe(token_ids=ids, head=0, tail=4)
    assert Plan("step", 16, 4).recut(ids) == Probe(token_ids=ids, head=6, tail=4)
    assert Plan("forward", 16).probe(ids) == Probe(token_ids=ids, head=1, tail=1)
    assert Plan("forward", 16).recut(ids) == Probe(token_ids=ids, head=8, tail=1)
    assert Plan("step", 2, 1).recut((0, 1)) == Probe(token_ids=(0, 1), head=1, tail=1)


def test_a_reference_against_itself_is_exactly_zero_and_native_arms_count_too() -> None:
    report = fidelity("native")[0].report
    assert report.kl.value == report.kl_max == 0.0
    assert report.counted == report.total == 24


def test_the_floor_repeats_a_native_reference_and_nothing_else() -> None:
    started = Started(lambda c: FakeArm(c, shift=0.01))
    floor = fidelity("kv8", start=started, floor_sequences=2)[0].report.floor
    assert floor is not None
    assert (floor.sequences, floor.positions) == (2, 8)
    assert 0 < floor.kl_mean <= floor.kl_max
    assert [len(arm.probes) for arm in started.arms] == [8, 6]
    assert fidelity("kv8", floor_sequences=0)[0].report.floor is None
    quantised = run_fidelity(config("kv8"), [config("kv4")], SEQUENCES, tail=4, start=FakeArm)[0]
    assert quantised.report.floor is None  # recut, it would attend other caches: no A/A
    assert quantised.reference_live == "affine8:g64"


@pytest.mark.parametrize(("protocol", "sticks"), [("step", 13), ("step", 16), ("forward", 2)])
def test_one_counted_position_of_an_unquantised_cache_makes_the_run_invalid(protocol: str, sticks: int) -> None:
    started = Started(lambda c: FakeArm(c, sticks=sticks if c.kv != "native" else 0))
    count = len(ROWS[protocol]) - (sticks - ROWS[protocol].start)
    words = rf"lever not applied: engine kv=kv4, sequence 0, position {ROWS[protocol].start} attended 'native' .*"
    with pytest.raises(LeverNotApplied, match=words + rf"{count} of {len(ROWS[protocol])} scored"):
        fidelity("kv8", "kv4", protocol=protocol, start=lambda c: FakeArm(c) if c.kv == "kv8" else started(c))
    assert all(arm.closed for arm in started.arms)


def test_a_start_that_is_reached_before_the_scored_positions_counts_and_a_later_one_does_not() -> None:
    assert fidelity("kv4:start=9")[0].report.counted == 24
    with pytest.raises(LeverNotApplied):
        fidelity("kv4:start=9", start=lambda c: FakeArm(c, sticks=16 if c.kv != "native" else 0))


def test_a_native_arm_on_a_quantised_cache_is_invalid_as_well() -> None:
    class Leaky(FakeArm):
        def probe(self, probe: Probe) -> object:  # type: ignore[override]
            trace = super().probe(probe)
            live = ["affine8:g64"] * 16 if self.config.kv == "native" else trace.doc["kv_live"]
            return type(trace)(trace.tensors, dict(trace.doc) | {"kv_live": live})

    with pytest.raises(LeverNotApplied, match="'affine8:g64' instead of 'native'"):
        fidelity("kv8", start=Leaky)


def test_caches_of_another_scheme_at_the_end_are_refused() -> None:
    with pytest.raises(SchemeNotLive, match="instead of affine8:g64"):
        fidelity("kv8", start=lambda c: FakeArm(c, wrong="end" if c.kv == "kv8" else None))


def test_an_arm_that_cannot_load_is_refused_before_anything_runs() -> None:
    started = Started(lambda c: FakeArm(c, wrong="refuses" if c.kv == "kv4" else None))
    with pytest.raises(OracleRefused, match="not built"):
        fidelity("kv8", "kv4", start=started)
    assert [arm.probes for arm in started.arms] == [[], [], []]
    assert all(arm.closed for arm in started.arms)


@pytest.mark.parametrize(("wrong", "match"), [("nan", "not finite"), ("short", r"instead of \[16, V\]")])
def test_broken_logits_are_refused(wrong: str, match: str) -> None:
    with pytest.raises(BadLogits, match=match):
        fidelity("kv8", start=lambda c: FakeArm(c, wrong=wrong))
    with pytest.raises(BadLogits, match=match):
        run_perplexity(NATIVE, SEQUENCES, start=lambda c: FakeArm(c, wrong=wrong))


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((NATIVE, [], SEQUENCES), {}, "candidates"),
        ((NATIVE, [NATIVE], []), {}, "sequences"),
        ((NATIVE, [NATIVE], [SEQUENCES[0], SEQUENCES[1][:9]]), {"tail": 4}, "sequence 1='9 tokens'"),
        ((NATIVE, [NATIVE], SEQUENCES), {"tail": 16}, r"tail=16 .*allowed: 1\.\.15"),
        ((NATIVE, [NATIVE], SEQUENCES), {"tail": 0}, "tail"),
        ((NATIVE, [NATIVE], SEQUENCES), {"protocol": "chunk"}, "allowed: step, served, forward"),
        ((NATIVE, [NATIVE], [[1, 2]]), {"protocol": "forward"}, "length"),
        ((NATIVE, [NATIVE], SEQUENCES), {"tail": 4, "labels": ["prose"]}, "labels"),
        ((NATIVE, [NATIVE], SEQUENCES), {"tail": 4, "floor_sequences": -1}, "floor_sequences"),
        ((NATIVE, [config("kv9")], SEQUENCES), {"tail": 4}, "kv='kv9'"),
    ],
)
def test_bad_input_is_refused_before_a_process_starts(arguments: tuple, options: dict, match: str) -> None:  # type: ignore[type-arg]
    started = Started()
    with pytest.raises(errors.InvalidValue, match=match):
        run_fidelity(*arguments, **options, start=started)
    assert started.arms == []


def test_the_result_says_what_was_measured_on_what() -> None:
    seen: list[tuple[str, int, int | None]] = []
    result = fidelity(
        "kv4",
        labels=["prose", "code"] * 3,
        corpus_sha256="abc",
        progress=lambda label, done, total: seen.append((label, done, total)),
    )[0]
    document = result.as_dict()
    assert document["lever"] == "engine kv4 (start 0, live affine4:g64)"
    assert (document["machine"], document["corpus_sha256"], document["kv_start"]) == ("a-machine", "abc", 0)
    assert document["reference"]["kv"] == "native"
    assert document["candidate"]["stack"] == "engine"
    by_domain = result.kl_by_domain
    assert list(by_domain) == ["prose", "code"]
    means = [interval.value for interval in by_domain.values()]
    assert np.mean(means) == pytest.approx(result.report.kl.value, rel=1e-12)
    assert means[0] == pytest.approx(np.mean(result.report.kl_by_sequence[::2]), rel=1e-12)
    assert seen[0] == ("KL", 0, 16)
    assert seen[-1] == ("KL", 16, 16)


@pytest.mark.parametrize("protocol", ["step", "forward"])
def test_perplexity_is_that_of_the_scored_positions(protocol: str) -> None:
    found = run_perplexity(config("kv4"), SEQUENCES, protocol=protocol, tail=4, start=FakeArm)
    nll = [_nll(logits(config("kv4"), ids, protocol), ids, protocol) for ids in SEQUENCES]
    assert found.perplexity.value == pytest.approx(math.exp(np.concatenate(nll).mean()), rel=1e-12)
    assert found.nll_by_sequence == pytest.approx([n.mean() for n in nll], rel=1e-12)
    assert found.perplexity.low is not None
    assert found.perplexity.high is not None
    assert found.perplexity.low < found.perplexity.value < found.perplexity.high
    assert (found.scored, found.live) == (6 * len(ROWS[protocol]), "affine4:g64")
    with pytest.raises(LeverNotApplied):
        run_perplexity(config("kv4"), SEQUENCES, tail=4, start=lambda c: FakeArm(c, sticks=16))


def test_served_sequences_run_as_rows_beside_each_other() -> None:
    arms: list[FakeArm] = []

    def start(asked: StackConfig) -> FakeArm:
        arms.append(FakeArm(asked))
        return arms[-1]

    served = run_fidelity(config(), [config("kv8")], SEQUENCES[:5], protocol="served", tail=4, group=2, start=start)
    step = run_fidelity(config(), [config("kv8")], SEQUENCES[:5], protocol="step", tail=4, start=FakeArm)
    assert served[0].report.kl == step[0].report.kl
    fed = [tuple(ids[:16]) for ids in SEQUENCES]
    asked = [(probe.token_ids, probe.beside) for probe in arms[1].probes]
    assert asked == [(fed[0], (fed[1],)), (fed[1], (fed[0],)), (fed[2], (fed[3],)), (fed[3], (fed[2],)), (fed[4], ())]


def test_warm_rows_are_asked_of_an_engine_with_a_prefix_cache() -> None:
    """The arm is started with one; what is recorded of it is what was asked. Fails if rows are asked without prefix."""
    started = Started()
    options = {"protocol": "served", "group": 4, "candidate_warm": 12, "floor_sequences": 0}
    (result,) = fidelity("native", start=started, **options)
    reference, candidate = started.arms
    assert [(probe.prefix, probe.served) for probe in candidate.probes] == [(12, True)] * 6
    assert [(probe.prefix, probe.served) for probe in reference.probes] == [(0, True)] * 6
    assert dict(candidate.config.levers)["prefix_cache"]
    assert reference.config.levers == result.candidate.levers == ()


def test_candidates_may_run_in_other_groups() -> None:
    """Fails if they are asked with the reference's rows."""
    started = Started()
    (result,) = fidelity("kv8", start=started, protocol="served", group=2, candidate_group=3, floor_sequences=0)
    assert [len(probe.beside) for probe in started.arms[0].probes] == [1] * 6
    assert [len(probe.beside) for probe in started.arms[1].probes] == [2] * 6
    assert "3 rows at a time" in result.lever


@pytest.mark.parametrize(("protocol", "group"), [("served", 1), ("step", 2), ("forward", 4)])
def test_a_group_is_for_the_served_protocol(protocol: str, group: int) -> None:
    with pytest.raises(errors.InvalidValue, match="group"):
        run_fidelity(config(), [config("kv8")], SEQUENCES, protocol=protocol, tail=4, group=group, start=FakeArm)


def test_warm_arms_are_asked_for_a_prefix_and_the_floor_is_cold() -> None:
    started = Started()
    (result,) = fidelity("native", start=started, candidate_warm=7, floor_sequences=1)
    reference, candidate = started.arms
    assert [probe.prefix for probe in reference.probes] == [0] * 7
    assert [probe.prefix for probe in candidate.probes] == [7] * 6
    assert (result.reference_warm, result.candidate_warm) == (0, 7)
    assert "7 tokens out of a kept state" in result.lever
    started = Started()
    fidelity("native", start=started, reference_warm=12, floor_sequences=1)
    assert [probe.prefix for probe in started.arms[0].probes] == [12, 0, 12, 12, 12, 12, 12]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"candidate_warm": 13}, r"candidate_warm=13 .*0\.\.12"),
        ({"reference_warm": -1}, "reference_warm=-1"),
        ({"candidate_warm": True}, "candidate_warm=True"),
        ({"candidate_warm": 4, "protocol": "forward"}, "only with the step protocol"),
        ({"layers": True, "protocol": "served", "group": 2}, "served protocol is not built"),
        ({"lens": True}, "only together with layers"),
    ],
)
def test_warm_and_layers_where_they_cannot_be_are_refused_before_a_process_starts(
    options: dict[str, object], match: str
) -> None:
    started = Started()
    with pytest.raises(errors.FrontierError, match=match):
        fidelity("kv8", start=started, **options)
    assert started.arms == []


@pytest.mark.parametrize("options", [{"layers": True, "lens": True}, {"candidate_warm": 4}])
def test_what_only_the_engine_does_is_refused_for_others(options: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidValue, match=r"'mlx-lm' .*the stack 'engine' alone"):
        run_fidelity(NATIVE, [config("kv8", "mlx-lm")], SEQUENCES, tail=4, start=FakeArm, **options)  # type: ignore[arg-type]
