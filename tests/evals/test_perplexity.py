"""Perplexity of one arm on stand-ins: what is refused before a process starts, and what is told on the way."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from eval_fakes import SEQUENCES, VOCAB, FakeArm, config

from engine import errors
from evals.fidelity import run_fidelity
from evals.perplexity import run_perplexity
from oracles.contract import OracleRefused, Probe, StackConfig, Trace


class Flat(FakeArm):
    """Every token is as likely as every other."""

    def probe(self, probe: Probe) -> Trace:
        trace = super().probe(probe)
        return Trace({"logits": mx.zeros(trace.tensors["logits"].shape)}, trace.doc)


def test_an_arm_that_knows_nothing_has_the_vocabulary_as_its_perplexity() -> None:
    found = run_perplexity(config(), SEQUENCES, start=Flat)
    assert found.perplexity.value == pytest.approx(VOCAB, rel=1e-14)
    assert found.nll_by_sequence == pytest.approx([math.log(VOCAB)] * 6, rel=1e-14)
    assert run_perplexity(config(), SEQUENCES[:1], start=Flat).perplexity.low is None


@pytest.mark.parametrize("protocol", ["step", "forward"])
def test_it_is_the_perplexity_that_a_kl_run_reports(protocol: str) -> None:
    report = run_fidelity(config(), [config("kv4")], SEQUENCES, protocol=protocol, tail=4, start=FakeArm)[0].report
    alone = [
        run_perplexity(config(kv), SEQUENCES, protocol=protocol, tail=4, start=FakeArm).perplexity
        for kv in ("native", "kv4")
    ]
    assert [report.reference_perplexity, report.candidate_perplexity] == alone


def test_progress_counts_finished_sequences() -> None:
    seen: list[tuple[str, int, int | None]] = []
    run_perplexity(config(), SEQUENCES, start=FakeArm, progress=lambda *told: seen.append(told))
    assert seen == [("perplexity", i, 6) for i in range(1, 7)]


@pytest.mark.parametrize(
    ("kv", "sequences", "options", "match"),
    [
        ("native", [], {}, "sequences=0"),
        ("native", [SEQUENCES[0], SEQUENCES[1][:9]], {}, "sequence 1='9 tokens'"),
        ("native", [[1, 2]], {}, "length=1"),
        ("native", SEQUENCES, {"protocol": "step", "tail": 16}, "tail=16"),
        ("native", SEQUENCES, {"protocol": "chunk"}, "allowed: step, served, forward"),
        ("kv9", SEQUENCES, {}, "kv='kv9'"),
    ],
)
def test_bad_input_is_refused_before_a_process_starts(
    kv: str, sequences: list[list[int]], options: dict[str, object], match: str
) -> None:
    started: list[StackConfig] = []

    def start(config: StackConfig) -> FakeArm:
        started.append(config)
        return FakeArm(config)

    with pytest.raises(errors.InvalidValue, match=match):
        run_perplexity(config(kv), sequences, start=start, **options)  # type: ignore[arg-type]
    assert started == []


def test_an_arm_that_cannot_load_runs_nothing_and_is_closed() -> None:
    arm = FakeArm(config(), wrong="refuses")
    with pytest.raises(OracleRefused, match="not built"):
        run_perplexity(config(), SEQUENCES, start=lambda _: arm)
    assert (arm.probes, arm.closed) == ([], True)


def test_each_sequence_is_fed_without_its_last_token() -> None:
    arm = FakeArm(config())
    run_perplexity(config(), SEQUENCES, start=lambda _: arm)
    assert [probe.token_ids for probe in arm.probes] == [tuple(ids[:16]) for ids in SEQUENCES]
    assert np.all([probe.head == 1 for probe in arm.probes])
