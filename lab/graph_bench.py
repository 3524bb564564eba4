"""The bare graph of the engine against an oracle's, on models of real shape: one row a model and task.

Sessions are the lab's: launches of two quads, both processes new in each launch, coins for every order (`lab.design`,
`lab.measure`); the unit of the interval is a launch (`lab.stats`). A is the oracle ("base"), B the engine
("candidate"), so a ratio above 1 is a faster engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from omegaconf import OmegaConf

from engine import errors
from lab.config import CONF
from lab.measure import Asked, Sample, Start, full_launches, group_quads
from lab.paired import QUADS_PER_LAUNCH, Paired
from lab.stats import Counted, count, launch_means, t_bounds
from oracles.contract import ForwardProbe, OracleRefused, StackConfig

TASKS = {"prefill": "prefill_tok_s", "decode": "decode_tok_s"}
PREFILL_TOKENS, DECODE_STEPS = 512, 32
MEMORY_RUNS, MEMORY_SPREAD = 3, 0.01
Verdict = Literal["met", "not met", "undecided", "not run", "lab"]


@dataclass(frozen=True)
class Limits:
    """When a ratio counts: its lower 95 % bound reaches `bound` and its interval is within +-`half_width`.

    `sample_s`: how long a sample lasts at least.
    """

    machine: str
    bound: float
    half_width: float
    sample_s: float

    @classmethod
    def of(cls, machine: str) -> Limits:
        """The limits of a class of machine, from lab/conf/machine: its delta. Errors: `UnknownField`."""
        known = sorted(path.stem for path in (CONF / "machine").glob("*.yaml"))
        if machine not in known:
            raise errors.UnknownField("--machine", machine, known)
        conf = OmegaConf.load(CONF / "machine" / f"{machine}.yaml")
        return cls(machine, 1 - float(conf.delta), float(conf.delta), float(conf.sample_s))


@dataclass(frozen=True)
class Row:
    """One task of one model. `ratio`: engine over the other, with its 95 % interval (None: there is none).

    `base`, `candidate`: geometric means in the metric's unit. `why`: what the verdict rests on. "lab": nobody else has
    it, so that there is nothing to meet.
    """

    model: str
    task: str
    verdict: Verdict
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    launches: int = 0
    base: float | None = None
    candidate: float | None = None

    def line(self) -> str:
        """What a reader sees as soon as it is known."""
        if self.ratio is None or self.low is None or self.high is None:
            return f"{self.task}: {self.verdict}" + (f", {self.why}" if self.verdict == "not run" else "")
        return f"{self.task}: {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f}), {self.verdict}"


@dataclass(frozen=True)
class ModelResult:
    """`memory`: peaks of both sides, the largest of each; None where nothing ran."""

    model: str
    rows: tuple[Row, ...]
    memory: Counted | None
    memory_verdict: Verdict
    repeats: int
    seed: int
    samples: tuple[Sample, ...]


def judge(low: float | None, high: float | None, limits: Limits) -> tuple[Verdict, str]:
    """The verdict of an interval of a ratio, and its reason."""
    if low is None or high is None:
        return "undecided", "too few launches for an interval"
    half = (high - low) / 2
    if half > limits.half_width:
        return "undecided", f"half-width {100 * half:.1f} % above {100 * limits.half_width:.0f} %"
    if low >= limits.bound:
        return "met", f"lower bound {low:.3f} >= {limits.bound:.2f}"
    return "not met", f"lower bound {low:.3f} < {limits.bound:.2f}"


def judge_memory(samples: Sequence[Sample]) -> tuple[Counted, Verdict]:
    """Peaks are counted: the largest of each side's samples, no test. Above the other's is "not met", unless either
    side's own samples spread wider than that: when MLX frees a buffer depends on its threads."""
    peaks = {role: [s.peak_bytes for s in samples if s.role == role] for role in ("base", "candidate")}
    found = count(peaks["base"], peaks["candidate"], "lower", runs=MEMORY_RUNS, spread_limit=MEMORY_SPREAD)
    if not found.enough:
        return found, "undecided"
    if found.candidate <= found.base:
        return found, "met"
    return found, "undecided" if found.candidate / found.base - 1 < found.spread else "not met"


def summarise(model: str, samples: Sequence[Sample], limits: Limits) -> tuple[Row, ...]:
    """The rows of one model from its samples."""
    return tuple(summarise_task(model, task, metric, samples, limits) for task, metric in TASKS.items())


def summarise_task(model: str, task: str, metric: str, samples: Sequence[Sample], limits: Limits) -> Row:
    """One row; a quad that broke a rule takes its launch with it."""
    quads = group_quads(samples, "ab")
    launches = full_launches(quads, metric, QUADS_PER_LAUNCH)
    if not launches:
        why = next((quad.why for quad in quads if quad.why), "no sample")
        return Row(model, task, "undecided", f"no valid launch: {why}")
    means = launch_means(launches)
    bounds = [math.exp(bound) if math.isfinite(bound) else None for bound in t_bounds(means, 0.025)]
    verdict, why = judge(bounds[0], bounds[1], limits)
    return Row(
        model=model,
        task=task,
        verdict=verdict,
        why=why,
        ratio=math.exp(math.fsum(means) / len(means)),
        low=bounds[0],
        high=bounds[1],
        launches=len(means),
        base=geometric_mean(samples, "base", metric),
        candidate=geometric_mean(samples, "candidate", metric),
    )


def geometric_mean(samples: Sequence[Sample], role: str, metric: str) -> float:
    logs = [math.log(s.value(metric)) for s in samples if s.role == role and s.valid]
    return math.exp(math.fsum(logs) / len(logs))


def choose_repeats(worker: Asked, probe: ForwardProbe, sample_s: float) -> int:
    """How often the probe is repeated so that a sample lasts `sample_s`; the first run is thrown away."""
    worker.probe(probe)
    doc = worker.probe(probe).doc
    return max(1, math.ceil(sample_s / (doc["prefill_s"] + doc["decode_s"])))


def run_model(
    model: str,
    arms: tuple[StackConfig, StackConfig],
    token_ids: tuple[int, ...],
    launches: int,
    limits: Limits,
    start: Start,
    tick: Callable[[str], None],
) -> ModelResult:
    """Measure one model. `arms`: (the other, the engine).

    A side that refuses the model makes both rows "not run" with its reason. Errors: `OracleCrashed`, `LeverNotApplied`,
    `InvalidValue` for fewer than one launch.
    """
    session = Paired(task="graph", name=model, arms=arms, launches=launches, start=start, tick=tick)
    once = ForwardProbe(token_ids=token_ids, steps=DECODE_STEPS)
    try:
        repeats = max(session.pilots(lambda worker: choose_repeats(worker, once, limits.sample_s)))
    except OracleRefused as refused:
        rows = tuple(Row(model, task, "not run", str(refused)) for task in TASKS)
        return ModelResult(model, rows, None, "not run", 0, session.seed, ())
    samples = session.samples(replace(once, repeats=repeats), lambda sample, _trace: sample)
    timed = [sample for sample in samples if not sample.warm_up]
    memory, verdict = judge_memory(timed)
    return ModelResult(model, summarise(model, timed, limits), memory, verdict, repeats, session.seed, tuple(samples))
