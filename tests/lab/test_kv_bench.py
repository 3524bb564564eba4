"""`frontier bench kv`: who judges a scheme, verdicts of planted ratios, its probe in three stacks, one live run."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from engine import errors
from lab.commands import bench as command
from lab.graph_bench import Limits
from lab.graph_models import SIZES, build, prompt
from lab.kv_bench import Case, CaseResult, cases, run_case, shipped_by
from lab.measure import LeverNotApplied
from oracles.client import Worker
from oracles.contract import CacheProbe, OracleRefused, StackConfig, Trace
from oracles.kv_suite import mixed_plan
from oracles.live import planned_schemes

SHARED = Limits("shared", 0.90, 0.10, 2.0)
KV8 = Case(model="llama", context=3, scheme="kv8", kv="kv8", against="mlx-lm", own=False)
OWN = Case(model="llama", context=3, scheme="kv8/4", kv="kv8/4", against="engine", own=True)


class Fake:
    """Steps in 0.1 s and converts in 0.001 s, `speed` times as fast; `live`: its caches, where not as asked."""

    pids = itertools.count(100)

    def __init__(self, config: StackConfig, log: list[CacheProbe], speed: float, live: str | None, begun: str | None):
        self.config, self.log, self.speed, self.begun = config, log, speed, begun
        self.scheme = live or planned_schemes(config.kv, 1)[0]
        self.pid = next(self.pids)
        self.rng = np.random.default_rng(self.pid)

    def probe(self, probe: CacheProbe) -> Trace:
        self.log.append(probe)
        slower = float(np.exp(self.rng.normal(0, 0.002))) / self.speed
        converts = self.config.kv != "native"
        doc = {"prefill_s": 1.0, "ttft_s": 1.0, "decode_s": 0.1 * slower, "decode_tokens": probe.steps}
        doc |= {"convert_s": 0.001 * slower if converts else None, "kv_stepped": self.begun or self.scheme}
        cache = {"scheme": self.scheme, "offset": len(probe.token_ids) + probe.steps + 1}
        doc |= {"prompt_tokens": len(probe.token_ids), "peak_bytes": 1, "rss_bytes": 1, "kv_bytes": 7}
        return Trace({}, doc | {"kv_status": self.scheme, "caches": [cache], "levers": {}})

    def close(self) -> None:
        pass


def measure(
    case: Case, speed: float = 1.0, *, live: str | None = None, begun: str | None = None, launches: int = 4
) -> tuple[CaseResult, list[CacheProbe]]:
    log: list[CacheProbe] = []
    arms = case.arms("m", "bundled")

    def start(config: StackConfig) -> Fake:
        ours = config == arms[1]
        return Fake(config, log, speed if ours else 1.0, live if ours else None, begun if ours else None)

    return run_case(case, arms, (1, 2, 3), launches, SHARED, start, lambda _what: None), log


@pytest.mark.parametrize(("speed", "verdict"), [(1.0, "met"), (1.5, "met"), (0.8, "not met")])
def test_verdicts_of_planted_ratios(speed: float, verdict: str) -> None:
    result, _ = measure(KV8, speed)
    assert [(row.task, row.verdict) for row in result.rows] == [("decode", verdict), ("convert", verdict)]
    for row in result.rows:
        assert row.ratio == pytest.approx(speed, rel=0.01)
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.ratio < row.high
    decode, convert = result.rows
    assert decode.candidate == pytest.approx(160 * speed, rel=0.01)
    assert convert.base == pytest.approx(1.0, rel=0.01)
    assert result.kv_bytes == (7, 7)


def test_one_launch_has_no_interval() -> None:
    assert {row.verdict for row in measure(KV8, launches=1)[0].rows} == {"undecided"}
    with pytest.raises(errors.InvalidValue, match="--launches"):
        measure(KV8, launches=0)


def test_what_nobody_else_has_gets_a_ratio_and_no_verdict() -> None:
    decode, convert = measure(OWN, 0.5)[0].rows
    assert (decode.verdict, convert.verdict) == ("lab", "lab")
    assert decode.ratio == pytest.approx(0.5, rel=0.01)
    assert (convert.ratio, convert.base) == (None, None)
    assert convert.candidate == pytest.approx(2.0, rel=0.01)


def test_a_sample_lasts_as_long_as_was_asked_on_both_sides() -> None:
    result, log = measure(KV8, 2.0)
    # Steps: 0.05 s on the faster side, for 2 s. Conversions: 0.001 s on the slower one, for a quarter of that.
    assert 38 <= result.repeats <= 41
    assert 490 <= result.conversions <= 510
    assert {(p.repeats, p.conversions) for p in log[4:]} == {(result.repeats, result.conversions)}
    assert len(log) == 4 + 4 * (2 + 8)


@pytest.mark.parametrize(("live", "begun"), [("native", None), ("affine4:g64", None), (None, "native")])
def test_a_scheme_that_is_not_on_ends_the_run(live: str | None, begun: str | None) -> None:
    with pytest.raises(LeverNotApplied, match="lever not applied"):
        measure(KV8, live=live, begun=begun)


def test_a_scheme_that_a_side_refuses_is_not_run() -> None:
    def start(config: StackConfig) -> Fake:
        raise OracleRefused("engine: no")

    result = run_case(KV8, KV8.arms("m", "bundled"), (1,), 1, SHARED, start, lambda _what: None)
    assert [(row.verdict, row.why) for row in result.rows] == [("not run", "engine: no")]


@pytest.mark.parametrize(
    ("kv", "rings", "judge"),
    [
        ("native", False, "mlx-lm"),
        ("native", True, "mlx-lm"),
        ("kv8", False, "mlx-lm"),
        ("kv4:g32", True, "optiq"),
        ("kv8/8", False, "mlx-lm"),
        ("kv8/4", False, None),
        ("kv8:on-write", False, None),
        ("turbo:k8v3", False, None),
    ],
)
def test_who_judges_a_scheme(kv: str, rings: bool, judge: str | None) -> None:
    assert shipped_by(kv, 4, rings=rings) == judge


def test_plans_are_optiqs_unless_keys_and_values_differ(tmp_path: Path) -> None:
    assert shipped_by(mixed_plan({0: 8, 1: 4}), 4, rings=False) == "optiq"
    path = tmp_path / "kv_config.json"
    path.write_text(json.dumps([{"layer_idx": 0, "k_bits": 8, "v_bits": 4}]))
    assert shipped_by(f"mixed:{path}", 4, rings=False) is None


def test_cases_are_refused_before_anything_runs() -> None:
    found = cases(["llama", "gemma3_text"], [256], ["kv8", "mixed"], "tiny")
    assert [(c.model, c.scheme, c.against) for c in found] == [
        ("llama", "kv8", "mlx-lm"), ("llama", "mixed", "optiq"),
        ("gemma3_text", "kv8", "optiq"), ("gemma3_text", "mixed", "optiq"),
    ]  # fmt: skip
    assert set(planned_schemes(found[1].kv, SIZES["tiny"].layers)) == {"affine8:g32", "affine4:g32"}
    with pytest.raises(errors.UnknownField, match="gpt4"):
        cases(["gpt4"], [256], ["kv8"], "tiny")
    with pytest.raises(errors.InvalidValue, match="--contexts=0"):
        cases(["llama"], [0], ["kv8"], "tiny")
    with pytest.raises(errors.InvalidValue, match="kv9"):
        cases(["llama"], [256], ["kv9"], "tiny")


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": 1, "repeats": 2}, {"steps": 1, "conversions": True}])
def test_a_cache_probe_of_nothing_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidValue):
        CacheProbe(token_ids=(1,), **fields)


@pytest.mark.matrix
@pytest.mark.parametrize(("stack", "kv"), [("engine", "mixed"), ("optiq", "mixed"), ("mlx-lm", "native")])
def test_stacks_convert_and_step_over_the_same_context(stack: str, kv: str) -> None:
    folder = str(build(["gemma3_text"], "tiny", "float32")["gemma3_text"])
    probe = CacheProbe(token_ids=prompt("tiny", 100), steps=3, repeats=2, conversions=3)
    notation = mixed_plan({0: 8, 3: 4}) if kv == "mixed" else kv
    with Worker(StackConfig(stack=stack, model=folder, kv=notation, chunk=32)) as worker:
        # The second answer starts from the caches that the first one filled: they must be as they were.
        docs = [worker.probe(probe).doc for _ in range(2)]
    for doc in docs:
        assert doc["kv_stepped"] == doc["kv_status"] == kv
        assert {cache["offset"] for cache in doc["caches"]} == {104}
        assert (doc["convert_s"] is None) == (kv == "native")
        assert doc["decode_s"] > 0
        assert doc["prefill_s"] > 0
    assert docs[0]["prefill_s"] == docs[1]["prefill_s"]
    assert docs[0]["caches"] == docs[1]["caches"]


def test_the_command_prints_a_row_a_task_and_ends_with_its_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.graph_models.build", lambda models, size, dtype: dict.fromkeys(models, Path("m")))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["kv", "--models", "llama", "--contexts", "256", "--schemes", "kv8,kv8/4"])
    args.json, args.blas = True, "bundled"
    for speed, code in ((1.0, 0), (0.5, 1)):
        monkeypatch.setattr("lab.kv_bench.run_case", lambda case, *_, speed=speed: measure(case, speed)[0])
        assert command.run(args) == code
        captured = capsys.readouterr()
        document = json.loads(captured.out.splitlines()[-1])
        assert document["counts"] == {"lab": 2, "met" if code == 0 else "not met": 2}
        assert "kv8/4" in captured.err
    args.contexts = "256,many"
    with pytest.raises(errors.InvalidValue, match="--contexts"):
        command.run(args)
