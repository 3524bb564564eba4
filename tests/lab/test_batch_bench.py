"""The bench of batches: verdicts of planted speeds and waits, the cases, refusals, and one live run of both stacks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from engine import errors, openblas_path
from lab import batch_bench, lock
from lab.batch_bench import Case, CaseResult, Sizes, cases, probe_of, run_case
from lab.cli import main
from lab.commands import bench_batch
from lab.commands.bench_batch import check_differs, levers_of
from lab.graph_bench import Limits
from lab.graph_models import build
from lab.paired import Paired
from lab.stats import quantile_bounds
from oracles.batch_timing import together_s
from oracles.client import Worker
from oracles.contract import BusyProbe, OracleRefused, RowsProbe, StackConfig, TimeProbe, Trace
from oracles.row_bits import Cell, compare, measure_in_child

SHARED = Limits("shared", 0.90, 0.10, 2.0)
ARMS = (StackConfig(stack="mlx-lm", model="m"), StackConfig(stack="engine", model="m"))
STEP_S, CHUNK_S = 0.010, 0.030


class Fake:
    """Rows at a planted speed, or arrivals that wait as planted."""

    def __init__(self, config: StackConfig, speed: float, noise: float, wait_s: float, seed: int = 0) -> None:
        self.config, self.speed, self.noise, self.wait_s = config, speed, noise, wait_s
        self.rng, self.pid = np.random.default_rng(seed), 1

    def probe(self, probe: RowsProbe | BusyProbe) -> Trace:
        slower = float(np.exp(self.rng.normal(0, self.noise))) / self.speed
        rows = len(probe.rows)
        doc = {"stack": self.config.stack, "prefill_s": 0.1 * slower, "decode_s": 0.4 * slower, "ttft_s": 0.1 * slower}
        doc |= {"prompt_tokens": len(probe.token_ids), "peak_bytes": 100, "rss_bytes": 1, "kv_bytes": 1}
        extra = int(self.config.stack == "mlx-lm")
        doc["ahead"] = extra
        caches = [{"scheme": "native", "layout": "full", "offset": 60 + extra}]
        doc |= {"kv_status": "native", "caches": caches, "levers": {}}
        if isinstance(probe, RowsProbe):
            doc |= {"rows": rows, "decode_tokens": rows * (probe.limit - 1), "whole_s": 0.5 * slower}
        else:
            waits = [self.wait_s] * probe.arrivals
            doc |= {"decode_tokens": 9, "ttfts_s": waits, "gaps_s": waits * 4, "step_s": STEP_S, "chunk_s": CHUNK_S}
        return Trace(tensors={}, doc=doc)

    def close(self) -> None:
        """Nothing to end."""


def measure(
    case: Case, *, ratio: float = 1.0, noise: float = 0.005, wait_s: float = 0.02, base: str = "mlx-lm"
) -> CaseResult:
    arms = replace(ARMS[0], stack=base), ARMS[1]
    seeds = itertools.count()

    def start(config: StackConfig) -> Fake:
        return Fake(config, ratio if config.stack == "engine" else 1.0, noise, wait_s, next(seeds))

    return run_case(case, arms, probe_of(case, Sizes(), 100), 4, SHARED, start, lambda _what: None)


def verdicts(result: CaseResult) -> dict[str, str]:
    return {row.task: row.verdict for row in result.rows}


def test_one_row_is_judged_by_the_bound_of_the_machine() -> None:
    case = Case(model="llama", kind="rows", rows=1)
    assert verdicts(measure(case)) == {"decode": "met", "TTFT": "met"}
    assert verdicts(measure(case, ratio=0.8)) == {"decode": "not met", "TTFT": "not met"}
    assert set(verdicts(measure(case, noise=0.5)).values()) == {"undecided"}


def test_rows_together_are_judged_by_all_their_tokens_over_the_whole_time() -> None:
    case = Case(model="llama", kind="rows", rows=4)
    assert verdicts(measure(case, ratio=1.5)) == {"aggregate": "met", "decode": "lab", "TTFT": "lab"}
    assert verdicts(measure(case, ratio=1.1))["aggregate"] == "not met"
    whole = next(row for row in measure(case, ratio=1.5).rows if row.task == "aggregate")
    assert whole.ratio == pytest.approx(1.5, rel=0.02)
    assert whole.base == pytest.approx(4 * Sizes().decode / 0.5, rel=0.02)


def test_arrivals_are_judged_against_a_step_and_a_chunk_of_the_same_run() -> None:
    case = Case(model="llama", kind="busy", rows=4)
    assert verdicts(measure(case, wait_s=0.02)) == {"TTFT p95": "met", "ITL p99": "met"}
    assert verdicts(measure(case, wait_s=0.05)) == {"TTFT p95": "not met", "ITL p99": "not met"}


def test_every_case_is_asked_for_once_and_a_lone_row_has_no_arrivals() -> None:
    found = cases(["a"], [1, 2])
    assert [(case.kind, case.rows) for case in found] == [("rows", 1), ("rows", 2), ("busy", 2)]
    for rows in (0, 999):
        with pytest.raises(errors.InvalidValue, match="--rows"):
            cases(["a"], [rows])
    with pytest.raises(errors.InvalidValue, match="--max-tokens"):
        Sizes(decode=1)


def test_what_a_side_refuses_is_not_run() -> None:
    class Refusing(Fake):
        def probe(self, probe: RowsProbe | BusyProbe) -> Trace:
            raise OracleRefused("no such cache")

    case = Case(model="llama", kind="rows", rows=2)
    probe = probe_of(case, Sizes(), 100)
    result = run_case(case, ARMS, probe, 1, SHARED, lambda c: Refusing(c, 1, 0, 0), lambda _what: None)
    assert verdicts(result) == {"rows": "not run"}
    assert result.rows[0].why == "no such cache"


def test_a_quantile_is_bounded_by_the_order_of_its_values() -> None:
    assert quantile_bounds(range(58), 0.95, 0.05)[1] is None
    assert quantile_bounds(range(59), 0.95, 0.05)[1] == 58
    assert quantile_bounds([], 0.95, 0.05) == (None, None)
    draws = np.random.default_rng(3).random((2000, 200))
    bounds = [quantile_bounds(row, 0.95, 0.05) for row in draws]
    for missed in (sum(low > 0.95 for low, _ in bounds), sum(high < 0.95 for _, high in bounds)):  # type: ignore[operator]
        assert 0.02 < missed / len(bounds) < 0.065


def test_the_shared_rate_counts_only_while_all_rows_decode() -> None:
    # From 2 s, when the last row begins, to 4 s, when the first ends: two tokens of one row and one of the other.
    assert together_s([[0.0, 1.0, 3.0, 4.0], [2.0, 3.5, 5.0]]) == pytest.approx(2 / 3)
    with pytest.raises(RuntimeError, match="never decoded together"):
        together_s([[0.0, 1.0], [2.0, 3.0]])


@pytest.mark.matrix
def test_both_stacks_feed_the_same_tokens_and_answer_each_arrival() -> None:
    folder = str(build(["llama"], "tiny", "float32")["llama"])
    sizes = Sizes(prompt=40, decode=16, chunk=4)
    one, two = (probe_of(Case(model="llama", kind="rows", rows=n), sizes, 512) for n in (1, 2))
    busy = probe_of(Case(model="llama", kind="busy", rows=3), sizes, 512)
    assert isinstance(busy, BusyProbe)
    busy = replace(busy, arrivals=2)
    arms = [StackConfig(stack=stack, model=folder, chunk=4) for stack in ("engine", "mlx-lm")]
    if openblas_path() is not None:  # rows as in mlx-lm's batch, which feed their last token too
        arms.append(replace(arms[0], blas="openblas", levers=(("batch_mode", "composition"),)))
    fed = []
    for arm in arms:
        with Worker(arm) as worker:
            docs = [worker.probe(p).doc for p in (TimeProbe(token_ids=(2,) * 9, max_tokens=4), one, two)]
            doc = worker.probe(busy).doc
        fed.append([d["caches"][0]["offset"] - d.get("ahead", 0) for d in docs])
        assert len(doc["ttfts_s"]) == 2
        assert len(doc["gaps_s"]) >= 10
        assert min(*doc["ttfts_s"], *doc["gaps_s"], doc["step_s"], doc["chunk_s"]) > 0
    assert fed == [[12, 55, 55]] * len(arms)


@pytest.mark.matrix
def test_a_row_alone_has_the_bits_that_it_has_in_a_batch_and_a_planted_difference_is_found() -> None:
    table = measure_in_child("bundled")
    assert len(table["rows"]) == 2 * 17
    if table["machine"].endswith("cpu-bundled"):
        assert {cell["unequal"] for line in table["rows"] for cell in line["cells"]} == {0}
    planted = (lambda b: mx.ones((b, 2)), lambda x: x * x.shape[0], lambda x, b: x[b : b + 1])
    assert compare(planted, 4) == Cell(12, 12, 3.0)
    assert compare(planted, 1) == Cell(3, 0, 0.0)


@pytest.mark.parametrize(
    "line",
    [("--bits", "--rows", "2"), ("--bits", "--launches", "1"), ("--models", "smollm2-135m-instruct", "--size", "tiny")],
)
def test_flags_that_would_not_be_applied_are_refused(line: tuple[str, ...]) -> None:
    assert main(["bench", "batch", *line]) == 2


@pytest.mark.matrix
def test_both_stacks_live(tmp_path: Path) -> None:
    line = ("bench", "batch", "--models", "llama", "--rows", "1,2", "--launches", "1", "--blas", "bundled")
    done = subprocess.run([sys.executable, "-m", "lab.cli", *line], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert [case["case"]["rows"] for case in document["cases"]] == [1, 2, 2]
    whys = [row["why"] for case in document["cases"] for row in case["rows"]]
    assert not [why for why in whys if "no valid launch" in why]
    assert all(sample["valid"] for case in document["cases"] for sample in case["samples"])


def test_what_was_asked_and_did_not_run_is_an_exit_code_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a lever that this machine cannot apply and that reads like success."""
    monkeypatch.setattr(lock, "lock_path", lambda: tmp_path / "timing.lock")
    monkeypatch.setattr(bench_batch, "find", lambda models, *_: dict.fromkeys(models, tmp_path))
    monkeypatch.setattr(batch_bench, "vocabulary", lambda _folder: 100)

    def refuse(self: Paired, _pilot: object) -> None:
        raise OracleRefused("argmax='normalised' is not allowed; allowed: full: a GPU's kernels have it")

    monkeypatch.setattr(Paired, "pilots", refuse)
    line = ["--models", "llama", "--rows", "1", "--kinds", "rows", "--lever", "argmax=normalised"]
    assert main(["bench", "batch", *line, "--blas", "bundled"]) == 1
    said = capsys.readouterr().out
    assert "llama, 1 rows, rows: not run, argmax='normalised' is not allowed" in said


@pytest.mark.parametrize("task", ["decode", "prefill", "graph", "kv", "batch"])
def test_a_bench_and_a_timing_run_exclude_each_other(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a bench that times beside another timing run; the bits of a batch are no time, and need no lock."""
    monkeypatch.setattr(lock, "lock_path", lambda: tmp_path / "timing.lock")
    monkeypatch.setattr(bench_batch, "run_bits", lambda _out: 0)
    with lock.hold_timing("frontier lab run kv8"):
        assert main(["bench", task, "--blas", "bundled"]) == 2
        assert f"process {os.getpid()} runs 'frontier lab run kv8'" in capsys.readouterr().err
        assert main(["bench", "batch", "--bits", "--blas", "bundled"]) == 0


def test_levers_are_checked_before_anything_is_measured() -> None:
    assert levers_of(["compile=step", "fuse=quantized"]) == (("compile", "step"), ("fuse", "quantized"))
    assert levers_of([]) == ()
    with pytest.raises(errors.UnknownField, match="turbo"):
        levers_of(["turbo=on"])
    for bad in (["compile=yes"], ["compile"], ["batch=3"], ["kv=kv8"], ["compile=step", "compile=none"]):
        with pytest.raises(errors.InvalidValue):
            levers_of(bad)


def test_levers_are_the_engines_alone() -> None:
    with pytest.raises(errors.InvalidValue, match="mlx-lm has not the engine's"):
        StackConfig(stack="mlx-lm", model="x", levers=(("compile", "step"),))


def test_against_the_engine_itself_no_bar_holds_for_all_rows_together() -> None:
    case = Case(model="llama", kind="rows", rows=2)
    assert verdicts(measure(case, base="mlx-lm"))["aggregate"] == "not met"
    assert verdicts(measure(case, base="engine"))["aggregate"] == "lab"


def test_a_lever_is_not_measured_against_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted break: `--lever ops=lean --against engine` where lean is the default measured lean against lean."""
    monkeypatch.setattr("engine.machine", lambda: SimpleNamespace(key="linux-x86_64-cpu-bundled"))
    check_differs((("ops", "mlx"),))
    check_differs((("compile", "step"), ("fuse", "quantized")))
    for same in ((), (("ops", "lean"),), (("compile", "step"), ("fuse", "none"))):
        with pytest.raises(errors.InvalidValue, match="--against engine"):
            check_differs(same)
    monkeypatch.setattr("engine.machine", lambda: SimpleNamespace(key="darwin-arm64-m4"))
    check_differs((("ops", "lean"),))
