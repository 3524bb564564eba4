"""Quads and their ratio, on invented workers."""

from __future__ import annotations

import math

import pytest
from scorecard_fakes import FakeWorker, quiet

from engine import errors
from lab.bench import coins, run_quads, summarise, words
from lab.commands import bench as command
from oracles.contract import SchemeNotLive, StackConfig, TimeProbe
from oracles.live import require_scheme

PROBE = TimeProbe(token_ids=(1, 2, 3, 4), max_tokens=9)


def arms(log: list[tuple[str, str]], kv: str = "native") -> dict[str, tuple[str, str, FakeWorker]]:
    stacks = {"A": "engine", "B": "optiq"}
    return {
        arm: (stack, kv, FakeWorker(StackConfig(stack=stack, model="m", kv=kv), log)) for arm, stack in stacks.items()
    }


def test_samples_follow_the_coins_after_one_discarded_sample_an_arm() -> None:
    log: list[tuple[str, str]] = []
    samples = run_quads(arms(log), PROBE, 6, 3, require_scheme, quiet)
    timed = ["A" if name.startswith("engine") else "B" for event, name in log if event == "time"]
    assert "".join(timed) == "AB" + "".join(coins(6, 3))
    assert "".join(s.arm for s in samples) == "".join(coins(6, 3))
    assert {s.order for s in samples} == {"ABBA", "BAAB"}


def test_coins_are_seeded_and_fair_enough() -> None:
    assert coins(40, 1) == coins(40, 1)
    assert coins(40, 1) != coins(40, 2)
    assert 350 < coins(1000, 5).count("ABBA") < 650


def test_ratio_is_the_geometric_mean_over_quads() -> None:
    samples = run_quads(arms([]), PROBE, 5, 3, require_scheme, quiet)
    result = summarise(samples, "decode_tok_s")
    logs = {arm: [math.log(s.sample.decode_tok_s) for s in samples if s.arm == arm] for arm in "AB"}
    want = math.exp(sum(logs["A"]) / 10 - sum(logs["B"]) / 10)
    assert math.isclose(result.ratio.value, want, rel_tol=1e-12)
    assert result.ratio.n == 5
    assert result.ratio.low is not None
    assert result.ratio.low < want
    assert math.isclose(result.a.value / result.b.value, want, rel_tol=1e-12)


def test_one_quad_claims_nothing() -> None:
    result = summarise(run_quads(arms([]), PROBE, 1, 3, require_scheme, quiet), "decode_tok_s")
    assert result.ratio.low is None
    assert "nothing is claimed" in words(result, "engine", "optiq")


def test_an_incomplete_quad_is_refused() -> None:
    samples = run_quads(arms([]), PROBE, 2, 3, require_scheme, quiet)
    with pytest.raises(errors.InvalidValue, match="quad 1"):
        summarise(samples[:-1], "decode_tok_s")


def test_a_scheme_that_is_not_live_ends_the_run() -> None:
    workers = arms([])
    workers["B"] = ("optiq", "kv8", workers["B"][2])
    with pytest.raises(SchemeNotLive):
        run_quads(workers, PROBE, 1, 3, require_scheme, quiet)


def test_bad_sizes_are_named() -> None:
    with pytest.raises(errors.InvalidValue, match="quads"):
        run_quads(arms([]), PROBE, 0, 3, require_scheme, quiet)
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(errors.InvalidValue, match="--prompt-tokens"):
        command.check_task(parser.parse_args(["decode", "--prompt-tokens", "1"]))
