"""KL on real workers, on trained weights: bits order as they must, and a native position makes the run invalid."""

from __future__ import annotations

import pytest
from eval_fakes import EngineHere
from zoo_text import held_out, zoo_arm

from evals.fidelity import run_fidelity
from evals.gate import LeverNotApplied
from evals.perplexity import run_perplexity
from oracles.contract import OracleRefused, StackConfig

SEQUENCES = held_out(6, 41)


def arm(kv: str, stack: str = "engine", chunk: int = 2048) -> StackConfig:
    return zoo_arm("draft-0.5m", kv, stack, chunk)


@pytest.mark.parametrize("protocol", ["step", "forward"])
def test_fewer_bits_mean_more_divergence_and_none_means_none(protocol: str) -> None:
    names = ["native", "kv8", "kv4", "kv2"]
    results = run_fidelity(arm("native"), [arm(kv) for kv in names], SEQUENCES, protocol=protocol, tail=12)
    native, kv8, kv4, kv2 = (result.report.kl.value for result in results)
    assert kv2 > kv4 > kv8 > native == 0.0
    for result, scheme in zip(results, ("native", "affine8:g64", "affine4:g64", "affine2:g64"), strict=True):
        assert result.candidate_live == scheme
        assert result.report.counted == result.report.total == 6 * (12 if protocol == "step" else 39)
        assert result.machine.endswith("bundled")
    assert results[3].candidate_kv_bytes < results[2].candidate_kv_bytes < results[1].candidate_kv_bytes
    floor = results[0].report.floor
    assert floor is not None
    assert floor.kl_max == 0.0  # the bundled BLAS: forwards cut otherwise are bit-equal in fp32


def test_a_position_that_attended_the_native_cache_makes_the_run_invalid() -> None:
    # 41 tokens: 40 fed, the last 12 scored; the conversion comes after token 33, in the middle of these.
    with pytest.raises(LeverNotApplied, match=r"kv=kv4:start=33, sequence 0, position 28 attended 'native'.*7 of 12"):
        run_fidelity(arm("native"), [arm("kv4:start=33")], SEQUENCES, tail=12)
    with pytest.raises(LeverNotApplied, match=r"0 of 12 scored positions count \(0\.0 %\)"):
        run_perplexity(arm("kv4:start=5000"), SEQUENCES, protocol="step", tail=12)


def test_the_engine_and_mlx_lm_give_the_same_numbers_and_a_plan_that_is_not_there_is_refused() -> None:
    ours, theirs = (
        run_fidelity(arm("native", stack), [arm("kv4", stack)], SEQUENCES[:2], tail=12, layers=True)[0]
        for stack in ("engine", "mlx-lm")
    )
    assert ours.report == theirs.report
    assert ours.layers == theirs.layers
    assert [layer.layer for layer in ours.layers] == [-1, 0, 1, 2, 3, 4]
    assert ours.reference_kv_bytes == theirs.reference_kv_bytes
    with pytest.raises(OracleRefused, match=r"not a readable kv_config\.json"):
        run_fidelity(arm("native"), [arm("mixed:absent.json")], SEQUENCES[:2], tail=12)


def test_served_rows_have_the_numbers_of_each_alone() -> None:
    arms = arm("native"), [arm("kv4:g32")]
    served = run_fidelity(arms[0], arms[1], SEQUENCES[:5], protocol="served", tail=12, group=2)[0]
    step = run_fidelity(arms[0], arms[1], SEQUENCES[:5], protocol="step", tail=12)[0]
    assert served.report.kl == step.report.kl
    assert served.candidate_live == step.candidate_live == "affine4:g32"
    assert served.candidate_kv_bytes == step.candidate_kv_bytes
    with pytest.raises(OracleRefused, match="rows beside each other are the engine's"):
        run_fidelity(arm("native", "mlx-lm"), [arm("kv4", "mlx-lm")], SEQUENCES, protocol="served", tail=12, group=2)


@pytest.mark.parametrize(("kv", "warm"), [("native", 16), ("native", 12), ("kv4:g32", 8)])
def test_warm_rows_have_the_numbers_of_cold_ones(kv: str, warm: int) -> None:
    """At ends of chunks and of what is prefilled; five texts, so that the last row is alone. Fails if a kept prefix has
    other bits, and if an arm that should be warm is cold."""
    length = len(SEQUENCES[0]) - 1
    tail = length - warm if warm == 12 else 12
    cold = arm(kv, chunk=8)
    (result,) = run_fidelity(
        cold,
        [cold],
        SEQUENCES[:5],
        protocol="served",
        tail=tail,
        group=2,
        candidate_warm=warm,
        floor_sequences=0,
        start=EngineHere,
    )
    assert (result.report.kl.value, result.report.kl_max) == (0.0, 0.0)
    assert (result.candidate_warm, result.candidate_live) == (warm, result.reference_live)
    assert result.candidate_kv_bytes == result.reference_kv_bytes


def test_perplexity_of_warm_rows_is_that_of_cold_ones() -> None:
    how = {"protocol": "served", "tail": 12, "group": 2, "start": EngineHere}
    cold, warm = (run_perplexity(arm("kv8", chunk=8), SEQUENCES[:3], warm=n, **how) for n in (0, 16))  # type: ignore[arg-type]
    assert warm.nll_by_sequence == cold.nll_by_sequence
    assert (cold.warm, warm.warm, warm.live) == (0, 16, "affine8:g64")
