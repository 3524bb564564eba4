"""The bare graph's bench: verdicts of planted ratios, its plan, refusals, and one live run of both stacks."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import errors
from lab.commands import bench as command
from lab.console import Output
from lab.graph_bench import Limits, ModelResult, Row, judge, judge_memory, run_model
from lab.graph_models import CONFIGS, SIZES, build, config_of, prompt
from oracles.client import Worker
from oracles.contract import ForwardProbe, OracleRefused, StackConfig, Trace

SHARED = Limits("shared", 0.90, 0.10, 2.0)
ARMS = (StackConfig(stack="mlx-lm", model="m"), StackConfig(stack="engine", model="m"))


class Fake:
    """Answers at a planted speed; `log` collects what happened in order."""

    def __init__(self, config: StackConfig, log: list[str], speed: float, noise: float, peak: int) -> None:
        self.config, self.log, self.speed, self.peak = config, log, speed, peak
        self.rng, self.noise = np.random.default_rng(len(log)), noise
        self.pid = len(log)
        log.append(f"start {config.stack}")

    def probe(self, probe: ForwardProbe) -> Trace:
        self.log.append(f"{self.config.stack} {probe.repeats}")
        slower = float(np.exp(self.rng.normal(0, self.noise))) / self.speed
        doc = {"prefill_s": 0.2 * slower, "decode_s": 0.3 * slower, "ttft_s": 0.2 * slower}
        cache = {"scheme": "rotating:8", "offset": len(probe.token_ids) + probe.steps}
        doc |= {"prompt_tokens": len(probe.token_ids), "decode_tokens": probe.steps, "peak_bytes": self.peak}
        doc |= {"rss_bytes": 1, "kv_bytes": 1, "kv_status": "native", "caches": [cache], "levers": {}}
        return Trace(tensors={}, doc=doc)

    def close(self) -> None:
        self.log.append(f"close {self.config.stack}")


def measure(
    ratio: float, noise: float, launches: int = 4, peak: int = 100, log: list[str] | None = None
) -> ModelResult:
    kept: list[str] = [] if log is None else log
    speeds = {"engine": (ratio, peak), "mlx-lm": (1.0, 100)}

    def start(config: StackConfig) -> Fake:
        return Fake(config, kept, speeds[config.stack][0], noise, speeds[config.stack][1])

    return run_model("llama", ARMS, (1, 2, 3), launches, SHARED, start, lambda _what: None)


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [(1.0, 0.01, "met"), (0.93, 0.002, "met"), (0.85, 0.002, "not met"), (1.0, 0.4, "undecided")],
)
def test_verdicts_of_planted_ratios(ratio: float, noise: float, verdict: str) -> None:
    result = measure(ratio, noise)
    assert [row.verdict for row in result.rows] == [verdict, verdict]
    for row in result.rows:
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.ratio < row.high  # type: ignore[operator]
        if noise < 0.1:
            assert abs(row.ratio / ratio - 1) < 0.02  # type: ignore[operator]
            assert abs(row.candidate / row.base / ratio - 1) < 0.02  # type: ignore[operator]


def test_the_criterion_is_the_lower_bound_and_the_half_width() -> None:
    quiet = Limits("quiet", 0.98, 0.02, 1.0)
    assert judge(0.981, 1.01, quiet)[0] == "met"
    assert judge(0.979, 1.01, quiet)[0] == "not met"
    assert judge(0.981, 1.03, quiet)[0] == "undecided"  # wide, though its lower bound is good
    assert judge(None, None, quiet) == ("undecided", "too few launches for an interval")
    assert Limits.of("quiet") == quiet
    assert Limits.of("shared") == SHARED
    with pytest.raises(errors.UnknownField, match="shared"):
        Limits.of("mine")


def test_one_launch_has_no_interval() -> None:
    assert {row.verdict for row in measure(1.0, 0.01, launches=1).rows} == {"undecided"}


def test_more_memory_than_the_other_is_not_met() -> None:
    assert measure(1.0, 0.01, peak=100).memory_verdict == "met"
    assert measure(1.0, 0.01, peak=101).memory_verdict == "not met"
    result = measure(1.0, 0.01)
    assert judge_memory(result.samples[:4])[1] == "undecided"
    # One side's own samples spread by 5 %: an excess of 3 % says nothing, one of 6 % does.
    for excess, verdict in ((103, "undecided"), (107, "not met")):
        spread = [replace(s, peak_bytes=95 if i % 2 else 100) for i, s in enumerate(result.samples)]
        spread = [replace(s, peak_bytes=excess) if s.role == "candidate" else s for s in spread]
        assert judge_memory(spread)[1] == verdict


def test_each_launch_has_new_processes_and_samples_of_the_asked_length() -> None:
    log: list[str] = []
    result = measure(1.0, 0.01, log=log)
    # 0.5 s a pass on the slower side: four or five passes make a sample of 2 s.
    assert result.repeats in (4, 5)
    pilots = ["start engine", "engine 1", "engine 1", "close engine", "start mlx-lm", "mlx-lm 1", "mlx-lm 1"]
    assert log[:7] == pilots
    assert log.count("start engine") == log.count("close engine") == 1 + 4
    assert log.count(f"engine {result.repeats}") == 4 * (1 + 4)
    assert len(result.samples) == 4 * (2 + 8)


def test_a_family_that_is_not_there_is_not_run() -> None:
    def start(config: StackConfig) -> Fake:
        raise OracleRefused(f"{config.stack}: no such family")

    result = run_model("x", ARMS, (1, 2), 2, SHARED, start, lambda _what: None)
    assert result.rows == tuple(Row("x", task, "not run", "engine: no such family") for task in ("prefill", "decode"))
    assert result.memory_verdict == "not run"
    with pytest.raises(errors.InvalidValue, match="--launches"):
        run_model("x", ARMS, (1, 2), 0, SHARED, start, lambda _what: None)


def test_models_have_their_own_type_and_one_size() -> None:
    for model in CONFIGS:
        for size, dims in SIZES.items():
            config = config_of(model, size)
            assert config["model_type"] == model
            assert config["vocab_size"] == dims.vocab > max(prompt(size, 64))
    with pytest.raises(errors.UnknownField, match="--models: unknown 'gpt4'"):
        config_of("gpt4", "tiny")


def _graph_args(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["graph", *flags])
    args.json, args.blas = True, "bundled"
    return args


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (0.5, 1)])
def test_the_command_prints_a_row_a_task_and_ends_with_its_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ratio: float, code: int
) -> None:
    monkeypatch.setattr("lab.graph_bench.run_model", lambda *_args: measure(ratio, 0.002))
    monkeypatch.setattr("lab.graph_models.build", lambda models, size, dtype: dict.fromkeys(models, Path("m")))
    assert command.run_graph(_graph_args("--models", "llama"), Output(as_json=True)) == code
    captured = capsys.readouterr()
    document = json.loads(captured.out.splitlines()[-1])
    assert document["counts"] == ({"met": 3} if code == 0 else {"met": 1, "not met": 2})
    assert [row["task"] for row in document["models"][0]["rows"]] == ["prefill", "decode"]
    assert "llama" in captured.err


def test_importing_a_worker_leaves_the_blas_to_be_chosen() -> None:
    code = "import sys, oracles.worker; from engine import backend; print('mlx.core' in sys.modules, backend._chosen)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() in (["False", "None"], ["True", "bundled"], ["True", "openblas"])


@pytest.mark.matrix
def test_both_stacks_time_the_same_forwards() -> None:
    folder = build(["llama"], "tiny", "float32")["llama"]
    probe = ForwardProbe(token_ids=prompt("tiny", 12), steps=3, repeats=2)
    docs = {}
    for stack in ("engine", "mlx-lm"):
        with Worker(StackConfig(stack=stack, model=str(folder))) as worker:
            docs[stack] = worker.probe(probe).doc
    for doc in docs.values():
        assert doc["prefill_s"] > 0
        assert doc["decode_s"] > 0
        assert (doc["prompt_tokens"], doc["decode_tokens"]) == (12, 3)
        assert {cache["offset"] for cache in doc["caches"]} == {15}
        assert len(doc["caches"]) == 4
    assert docs["engine"]["kv_bytes"] == docs["mlx-lm"]["kv_bytes"]


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": True}, {"steps": 1, "repeats": 0}])
def test_a_forward_probe_of_nothing_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidValue):
        ForwardProbe(token_ids=(1,), **fields)
