"""One named workload, the engine against another stack: sessions of `lab.paired`, ratios over launches, tails over all
requests of a load. A ratio above 1 is a faster engine; nothing is judged, since no bar is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.graph_bench import Limits, Row, summarise_task
from lab.measure import Asked, Sample, Start
from lab.paired import Paired
from lab.session import extended
from lab.workloads import TOGETHER, LoadConf, WorkloadProbe, probe_of
from oracles.contract import OracleRefused, StackConfig, Trace

# task in the table -> metric; throughput where several rows run.
METRICS = {"decode": "decode_tok_s", "prefill": "prefill_tok_s", "TTFT": "ttft_ms", "aggregate": "agg_tok_s"}
TAILS: tuple[tuple[str, str, float], ...] = (
    ("TTFT p50", "ttfts_s", 0.5),
    ("TTFT p95", "ttfts_s", 0.95),
    ("ITL p99", "gaps_s", 0.99),
    ("E2E p50", "e2es_s", 0.5),
    ("E2E p95", "e2es_s", 0.95),
)


@dataclass(frozen=True)
class Tail:
    """A quantile over all requests of all valid samples, in ms; `values`: of the engine."""

    name: str
    engine_ms: float
    other_ms: float
    values: int


@dataclass(frozen=True, kw_only=True)
class LoadSample(Sample):
    """A sample with every wait of its requests, in seconds; empty where nobody waits for another."""

    ttfts_s: tuple[float, ...] = ()
    gaps_s: tuple[float, ...] = ()
    e2es_s: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkloadResult:
    """metrics: of each task; kv_bytes: of the engine's caches, one row's, at their largest."""

    workload: str
    rows: tuple[Row, ...]
    tails: tuple[Tail, ...]
    metrics: dict[str, str]
    kv_bytes: int
    seed: int
    samples: tuple[LoadSample, ...]


def waits(sample: Sample, trace: Trace) -> LoadSample:
    """`lab.session.extended`, and the waits of a load."""
    doc, fields = trace.doc, extended(sample, trace).__dict__
    found: dict[str, Any] = {name: tuple(doc[name]) for name in ("ttfts_s", "gaps_s", "e2es_s") if "e2es_s" in doc}
    return LoadSample(**fields, **found)


def tails_of(samples: Sequence[LoadSample]) -> tuple[Tail, ...]:
    """Of both sides; none where the workload is no load."""
    found = []
    for name, field, quantile in TAILS:
        sides = {
            role: [1e3 * value for s in samples if s.role == role and s.valid for value in s.__dict__[field]]
            for role in ("candidate", "base")
        }
        if all(sides.values()):
            ends = [float(np.quantile(values, quantile, method="higher")) for values in sides.values()]
            found.append(Tail(name, ends[0], ends[1], len(sides["candidate"])))
    return tuple(found)


def run_workload(
    load: LoadConf,
    arms: tuple[StackConfig, StackConfig],
    sizes: tuple[int, int],
    token_ids: tuple[int, ...],
    launches: int,
    limits: Limits,
    start: Start,
    tick: Callable[[str, int], None],
) -> WorkloadResult:
    """Measure it. arms: (the other, the engine); sizes: prompt and new tokens; tick: what is done, and how many so far.

    A stack that cannot run it makes the row "not run". Errors: `OracleCrashed`, `LeverNotApplied`.
    """
    seen = [0]

    def count(what: str) -> None:
        tick(what, seen[0])
        seen[0] += 1

    probe: WorkloadProbe = probe_of(load, *sizes, token_ids)
    tasks = [task for task in METRICS if task != "aggregate" or load.kind in TOGETHER]
    metrics = {task: METRICS[task] for task in tasks}
    session = Paired(task="workload", name=load.name, arms=arms, launches=launches, start=start, tick=count)

    def pilot(worker: Asked) -> None:
        worker.probe(probe)

    def result(rows: Sequence[Row], samples: Sequence[LoadSample]) -> WorkloadResult:
        return WorkloadResult(
            workload=load.name,
            rows=tuple(rows),
            tails=tails_of(samples),
            metrics=metrics,
            kv_bytes=max((s.kv_bytes for s in samples if s.role == "candidate"), default=0),
            seed=session.seed,
            samples=tuple(samples),
        )

    try:
        session.pilots(pilot)
    except OracleRefused as refused:
        return result([Row(load.name, "decode", "not run", str(refused))], ())
    timed = [s for s in session.samples(probe, waits) if not s.warm_up]
    rows = [summarise_task(load.name, task, metric, timed, limits) for task, metric in metrics.items()]
    return result([replace(row, verdict="lab") for row in rows], timed)
