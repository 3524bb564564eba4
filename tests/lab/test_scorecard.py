"""Taking turns, refusals, quality and the rows of the scorecard, on invented workers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scorecard_fakes import PROFILE, SEQUENCES, FakeWorker, measured, pool, quiet

from engine import errors
from lab.ceilings import Artifact, Ceilings, Floor
from lab.estimate import counted, ratio, sequence_mean, timing
from lab.quality import run_quality
from lab.recipes import PROFILES, RECIPES, Pilot, Pool, Sample, fit, kl_seconds, take_samples, warm_up
from oracles.contract import OracleRefused, Probe, SchemeNotLive, StackConfig, TimeProbe, Trace
from oracles.live import require_scheme


def test_every_round_asks_every_recipe_once_in_another_order() -> None:
    log: list[tuple[str, str]] = []
    with pool(log) as p:
        warm_up(p, p.live, SEQUENCES[0], require_scheme, quiet)
        before = len(log)
        samples = take_samples(p, SEQUENCES, PROFILE, require_scheme, quiet, 3)
    names = [name for event, name in log[before:] if event == "time"]
    rounds = [names[i : i + 8] for i in range(0, 24, 8)]
    assert len(samples) == 24
    assert all(sorted(r) == sorted(set(r)) for r in rounds)
    assert len({tuple(r) for r in rounds}) == 3
    assert sum(event == "start" for event, _ in log) == 9
    assert sum(event == "close" for event, _ in log) == 9


def test_relaunch_gives_each_round_new_processes() -> None:
    log: list[tuple[str, str]] = []
    profile = replace(PROFILE, relaunch=True)
    with pool(log) as p:
        warm_up(p, p.live, SEQUENCES[0], require_scheme, quiet)
        samples = take_samples(p, SEQUENCES, profile, require_scheme, quiet, 3)
    assert sum(entry == ("start", "engine native") for entry in log) == 3
    assert {(s.round, s.launch) for s in samples} == {(0, 0), (1, 1), (2, 2)}


def test_a_sample_knows_its_launch_and_the_hosts_share_and_is_recorded_at_once() -> None:
    """Planted breaks that fail here: a launch taken for a round, samples that are recorded only at the end."""
    log: list[tuple[str, str]] = []
    seen: list[tuple[str, int]] = []
    with pool(log, aa=True) as p:
        warm_up(p, p.live, SEQUENCES[0], require_scheme, quiet)

        def record(sample: Sample) -> None:
            seen.append((sample.recipe, sum(event == "time" for event, _ in log)))

        samples = take_samples(p, SEQUENCES, PROFILE, require_scheme, quiet, 3, record)
    assert {s.launch for s in samples} == {0}
    assert [count for _, count in seen] == list(range(seen[0][1], seen[0][1] + len(seen)))
    assert sum(s.recipe == "mlx-lm native A/A" for s in samples) == PROFILE.rounds
    assert all(s.steal is None or 0 <= s.steal <= 1 for s in samples)


def test_with_little_memory_only_one_process_lives() -> None:
    log: list[tuple[str, str]] = []
    with pool(log, resident=False) as p:
        samples = take_samples(p, SEQUENCES, PROFILE, require_scheme, quiet, 3)
    alive = peak = 0
    for event, _ in log:
        alive += {"start": 1, "close": -1}.get(event, 0)
        peak = max(peak, alive)
    assert peak == 1
    assert alive == 0
    assert len(samples) == 24


def test_a_refusal_is_listed_with_its_words_never_dropped() -> None:
    samples, quality, refused = measured()
    assert refused == {"optiq kv4": "optiq: NotImplementedError: no 4-bit here"}
    assert "optiq kv4" not in {s.recipe for s in samples} | set(quality)


class NeverQuantised(FakeWorker):
    """Says kv8 and stays native."""

    def probe(self, probe: Probe | TimeProbe) -> Trace:
        trace = super().probe(probe)
        cache = {"scheme": "native", "bits": None, "group_size": None, "kv_bytes": 1, "offset": 9}
        return Trace(tensors=trace.tensors, doc=dict(trace.doc) | {"caches": [cache] * 2, "kv_status": "native"})


def test_a_scheme_that_is_not_live_is_not_run() -> None:
    config = StackConfig(stack="engine", model="m", kv="kv8")
    with Pool({"engine kv8": config}, lambda c: NeverQuantised(c, []), resident=True) as p:
        warm_up(p, p.live, SEQUENCES[0], require_scheme, quiet)
        assert list(p.refused) == ["engine kv8"]


class Unconverted(FakeWorker):
    """One scored position attended a native cache."""

    def probe(self, probe: Probe | TimeProbe) -> Trace:
        trace = super().probe(probe)
        if isinstance(probe, TimeProbe):
            return trace
        live = list(trace.doc["kv_live"])
        live[3] = "native"
        return Trace(tensors=trace.tensors, doc=dict(trace.doc) | {"kv_live": live})


def test_a_scored_position_on_an_unquantised_cache_makes_the_run_invalid() -> None:
    configs = {s.name: StackConfig(stack=s.stack, model="m", kv=s.kv) for s in RECIPES if s.stack == "mlx-lm"}
    with Pool(configs, lambda c: Unconverted(c, []), resident=True) as p, pytest.raises(SchemeNotLive, match="3"):
        run_quality(p, RECIPES, SEQUENCES, PROFILE, quiet)


@pytest.mark.parametrize("resident", [True, False])
def test_equal_bits_take_over_numbers_and_other_bits_are_scored_in_full(resident: bool) -> None:
    _, quality, _ = measured(resident=resident)
    engine, peer, optiq = quality["engine kv8"], quality["mlx-lm kv8"], quality["optiq kv8"]
    assert engine.same_bits_as == "mlx-lm kv8"
    assert engine.kl_units == peer.kl_units
    assert engine.checked == 2 * 11
    assert optiq.same_bits_as is None
    assert len(optiq.kl_units) == 5
    assert optiq.kl_units != peer.kl_units
    assert quality["mlx-lm native"].kl_units == (0.0,) * 5
    assert quality["mlx-lm kv4"].kl.value > peer.kl.value > 0


def test_kl_against_a_plain_computation_in_the_stated_direction() -> None:
    _, quality, _ = measured()
    probe = Probe(token_ids=tuple(SEQUENCES[0][:12]), head=1, tail=1)
    logs = []
    for kv in ("native", "kv4"):
        logits = FakeWorker(StackConfig(stack="mlx-lm", model="m", kv=kv), []).probe(probe).tensors["logits"]
        wide = np.array(logits)[1:].astype(float)
        logs.append(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))
    want = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1).mean()
    assert math.isclose(quality["mlx-lm kv4"].kl_units[0], want, rel_tol=1e-9)


def test_perplexity_against_a_plain_computation() -> None:
    _, quality, _ = measured()
    ids = SEQUENCES[0]
    worker = FakeWorker(StackConfig(stack="mlx-lm", model="m"), [])
    logits = np.array(worker.probe(Probe(token_ids=tuple(ids[:12]), head=1)).tensors["logits"]).astype(float)
    nll = [math.log(sum(math.exp(v) for v in logits[j])) - logits[j][ids[j + 1]] for j in range(1, 12)]
    assert math.isclose(quality["mlx-lm native"].nll_units[0], sum(nll) / 11, rel_tol=1e-12)


def test_without_its_reference_nothing_is_scored() -> None:
    configs = {"mlx-lm native": StackConfig(stack="mlx-lm", model="m")}

    def start(config: StackConfig) -> FakeWorker:
        raise OracleRefused("mlx-lm: no such model")

    with Pool(configs, start, resident=True) as p:
        warm_up(p, p.live, SEQUENCES[0], require_scheme, quiet)
        with pytest.raises(errors.InvalidValue, match="mlx-lm native"):
            run_quality(p, RECIPES, SEQUENCES, PROFILE, quiet)


def test_a_slow_pilot_cuts_sizes_and_says_so() -> None:
    quick = PROFILES["quick"]
    fast, none = fit(quick, Pilot(90.0, 12.0), 9)
    assert (fast, none) == (quick, ())
    slow, notes = fit(quick, Pilot(9.0, 4.0), 9)
    assert slow.rounds == 2
    assert slow.prompt_tokens < quick.prompt_tokens
    assert slow.kl_sequences < quick.kl_sequences
    assert len(notes) == 4
    assert kl_seconds(slow, Pilot(9.0, 4.0), 9) <= quick.kl_budget_s


def test_a_sample_without_a_duration_is_refused() -> None:
    doc = {"prefill_s": 0.0, "decode_s": 1.0, "ttft_s": 1.0, "decode_tokens": 4}
    with pytest.raises(errors.InvalidValue, match="prefill_s of x"):
        Sample.of("x", 0, 0, Trace(tensors={}, doc=doc))


def test_intervals() -> None:
    assert timing([3.0]).low is None
    assert timing([3.0, 3.0]).low is None, "zero variance is no certainty"
    two = timing([2.0, 8.0])
    assert math.isclose(two.value, 4.0)
    half = 12.706204736 * np.std(np.log([2.0, 8.0]), ddof=1) / math.sqrt(2)
    assert two.high is not None
    assert math.isclose(two.high, 4 * math.exp(half), rel_tol=1e-8)
    assert ratio([2.0, 4.0], [1.0, 2.0]).value == 2.0
    assert counted([5, 7, 6]).value == 7
    assert sequence_mean([1.0]).high is None
    with pytest.raises(errors.InvalidValue, match="at least one"):
        timing([])


def test_percent_of_limit_is_a_roofline() -> None:
    artifact = Artifact(1000, 1000, 250, 50, True)
    by_memory = Floor.of(artifact, 200, 4, Ceilings(1, 1e-6, 1e-3, "bundled", "k"))
    assert by_memory.decode_bound == "memory"
    assert math.isclose(by_memory.decode_s, 1.2)
    assert math.isclose(by_memory.decode_percent(0.5), 60)
    assert by_memory.prefill_bound == "memory"
    by_work = Floor.of(artifact, 200, 100, Ceilings(1, 1.0, 1e-9, "bundled", "k"))
    assert (by_work.decode_bound, by_work.prefill_bound) == ("arithmetic", "arithmetic")
    assert math.isclose(by_work.decode_s, 500)
    assert math.isclose(by_work.prefill_token_s, 400)
