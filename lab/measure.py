"""Runs a plan: starts the processes, takes the samples in the planned order, hands each out the moment it is taken.

Two processes of a launch are alive together and only one works at a time; the other sleeps on a pipe. An arm whose
lever is not on in its discarded first sample ends the run; a later sample that breaks a rule makes its quad invalid,
with the reason. No rule looks at a duration, so none can prefer an arm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Literal, Protocol

from engine import errors
from lab import sensors
from lab.design import Launch, Plan, Role
from lab.sensors import Reading
from lab.stats import Better, quad_value
from oracles.contract import (
    BusyProbe,
    CacheProbe,
    DrawProbe,
    ForwardProbe,
    LoadProbe,
    RowsProbe,
    SchemeNotLive,
    StackConfig,
    TimeProbe,
    Trace,
)
from oracles.live import idle_levers, is_state, require_scheme

Part = Literal["pilot", "aa", "ab"]
METRICS: dict[str, Better] = {
    "decode_tok_s": "higher",
    "prefill_tok_s": "higher",
    "agg_tok_s": "higher",
    "self_bleu": "lower",
    "ttft_ms": "lower",
    "peak_bytes": "lower",
    "kv_bytes": "lower",
    "convert_ms": "lower",
}
DURATIONS = ("prefill_s", "decode_s", "ttft_s", "decode_tokens")


class LeverNotApplied(SchemeNotLive):
    """The candidate (or base) does not run what it was asked to run: there is nothing to compare."""


TimedProbe = TimeProbe | ForwardProbe | CacheProbe | RowsProbe | BusyProbe | LoadProbe | DrawProbe


class Asked(Protocol):
    """The part of `oracles.client.Worker` that measuring needs."""

    @property
    def pid(self) -> int: ...

    def probe(self, probe: TimedProbe) -> Trace: ...

    def close(self) -> None: ...


Start = Callable[[StackConfig], Asked]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One timed sample as it was taken. `t0`, `t1`: wall clock of the probe; `block` -1 in a discarded one.

    attempt: of its quad, from 0: a quad that was invalid, or that a dead run left half done, is taken again, and only
    its last attempt counts. lever: the live caches in words. cache_tokens: tokens in the cache at the end, from an
    empty one, those that a loop feeds beyond what was asked left out; a recurrent state is not counted, mlx-lm's does
    not know. agg_tok_s: tokens of all rows over the time from the first arrival to the last of them, and self_bleu
    (`lab.diversity`); None where the workload has none.
    """

    part: Part
    role: Role
    launch: int
    block: int
    position: int
    order: str
    warm_up: bool
    pid: int
    process_started: float
    t0: float
    t1: float
    prompt_tokens: int
    decode_tokens: int
    cache_tokens: int
    decode_tok_s: float
    prefill_tok_s: float
    ttft_ms: float
    peak_bytes: int
    rss_bytes: int
    kv_bytes: int
    lever: str
    load1: float | None
    steal: float | None
    valid: bool
    why: str
    attempt: int = 0
    agg_tok_s: float | None = None
    self_bleu: float | None = None

    @property
    def sample_s(self) -> float:
        return self.t1 - self.t0

    def value(self, metric: str) -> float:
        """One metric of `METRICS` (or rss_bytes) by name."""
        return float(self.__dict__[metric])


@dataclass(frozen=True)
class QuadResult:
    """Four samples; `why` is empty for a valid quad."""

    launch: int
    block: int
    samples: tuple[Sample, ...]
    why: str

    @property
    def valid(self) -> bool:
        return not self.why

    def of(self, role: Role, metric: str) -> list[float]:
        return [s.value(metric) for s in self.samples if s.role == role]

    def y(self, metric: str) -> float:
        """The quad's log gain of the candidate."""
        return quad_value(self.of("base", metric), self.of("candidate", metric), METRICS[metric])


def judge_quad(samples: Sequence[Sample]) -> str:
    """Why the quad of these samples is invalid; "" if it is valid."""
    broken = [s.why for s in samples if not s.valid]
    if broken:
        return broken[0]
    for name in ("prompt_tokens", "decode_tokens", "cache_tokens"):
        values = sorted({s.__dict__[name] for s in samples})
        if len(values) != 1:
            return f"{name} differ: {', '.join(map(str, values))}"
    counts = [sum(s.role == role for s in samples) for role in ("base", "candidate")]
    return "" if counts == [2, 2] else f"{counts[0]} base and {counts[1]} candidate samples instead of 2 and 2"


def group_quads(samples: Sequence[Sample], part: Part) -> list[QuadResult]:
    """The quads of one part from its samples, in order, the last attempt of each; a replay starts here."""
    blocks: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.part == part and not sample.warm_up:
            kept = blocks.setdefault(sample.block, [])
            if kept and kept[0].attempt != sample.attempt:
                kept.clear()
            kept.append(sample)
    return [
        QuadResult(group[0].launch, block, tuple(group), judge_quad(group)) for block, group in sorted(blocks.items())
    ]


def kept_launches(samples: Sequence[Sample], part: Part, plan: Plan, repeats: int) -> dict[int, list[QuadResult]]:
    """The launches that need not be measured again, by number: every quad whole, and valid or repeated in vain."""
    quads = {quad.block: quad for quad in group_quads(samples, part)}
    kept = {}
    for launch in plan.launches:
        taken = [quads[planned.block] for planned in launch.quads if planned.block in quads]
        ended = [len(q.samples) == 4 and (q.valid or q.samples[0].attempt >= repeats) for q in taken]
        if len(taken) == len(launch.quads) and all(ended):
            kept[launch.number] = taken
    return kept


def next_attempts(samples: Sequence[Sample], part: Part) -> dict[int, int]:
    """Launch -> the attempt that its quads have when it is measured again."""
    found: dict[int, int] = {}
    for sample in samples:
        if sample.part == part:
            found[sample.launch] = max(found.get(sample.launch, 0), sample.attempt + 1)
    return found


def full_launches(quads: Sequence[QuadResult], metric: str, quads_per_launch: int) -> list[list[float]]:
    """Quad values of each launch whose quads are all there and valid; other launches are left out whole."""
    launches: dict[int, list[QuadResult]] = {}
    for quad in quads:
        launches.setdefault(quad.launch, []).append(quad)
    full = [group for group in launches.values() if len(group) == quads_per_launch and all(q.valid for q in group)]
    return [[quad.y(metric) for quad in group] for group in full]


def counts(quads: Sequence[QuadResult], metric: str, role: Role) -> list[float]:
    """A counted metric of each launch: the largest of its valid quads. How far MLX runs ahead of itself differs from
    sample to sample, and with it a peak; the most that a process ever held is what it needs."""
    launches: dict[int, list[float]] = {}
    for quad in quads:
        if quad.valid:
            launches.setdefault(quad.launch, []).extend(quad.of(role, metric))
    return [max(values) for values in launches.values()]


@dataclass(frozen=True)
class PartResult:
    """What a part gave. stopped: "looks" all planned quads taken, "look" a look said so, "time" the cap came first."""

    part: Part
    quads: tuple[QuadResult, ...]
    stopped: Literal["looks", "look", "time"]


@dataclass(kw_only=True)
class Bench:
    """Everything that taking samples needs from outside. `record` is called once for each sample, as it is taken;
    `extend` may turn it into one with more fields before that. `place`: what the sample at (part, block, position,
    attempt) asks in place of `probe`."""

    arms: Mapping[Role, StackConfig]
    probe: TimedProbe
    start: Start
    record: Callable[[Sample], None]
    tick: Callable[[str], None]
    inspect: Callable[[Role, Trace], None]
    extend: Callable[[Sample, Trace], Sample] = lambda sample, _trace: sample
    read_sensors: Callable[[], Reading] = sensors.read
    clock: Callable[[], float] = time.time
    place: Callable[[TimedProbe, Part, int, int, int], TimedProbe] = lambda probe, *_where: probe

    def part(
        self,
        part: Part,
        plan: Plan,
        *,
        discard: int,
        deadline: float | None = None,
        at_look: Callable[[list[QuadResult]], bool] = lambda _quads: False,
        repeats: int = 0,
        before: Sequence[Sample] = (),
    ) -> PartResult:
        """Take the samples of a plan. `at_look` sees the quads so far after each launch; True stops.

        The deadline (on `clock`) is held between launches: a launch that would not end in time is not begun. An invalid
        quad is taken again in its processes, at most `repeats` times. `before`: the samples that an earlier process
        left of this part; its whole launches are kept, the one that it died in is measured again.
        Errors: `LeverNotApplied`, `OracleRefused`, `OracleCrashed`, `InvalidValue` for a sample without a duration.
        """
        quads: list[QuadResult] = []
        kept, attempts = kept_launches(before, part, plan, repeats), next_attempts(before, part)
        launch_s = 0.0
        for launch in plan.launches:
            if launch.number in kept:
                quads += kept[launch.number]
            else:
                begin = self.clock()
                if deadline is not None and begin + launch_s > deadline:
                    return PartResult(part, tuple(quads), "time")
                quads += self.launch(part, launch, discard, repeats, attempts.get(launch.number, 0))
                launch_s = self.clock() - begin
            if at_look(quads):
                return PartResult(part, tuple(quads), "look")
        return PartResult(part, tuple(quads), "looks")

    def launch(self, part: Part, launch: Launch, discard: int, repeats: int, attempt: int) -> list[QuadResult]:
        """One pair of processes, from start to end. `attempt`: the first of its quads."""
        with ExitStack() as stack:
            workers: dict[Role, tuple[Asked, float]] = {}
            for role in launch.start_order:
                started = self.clock()
                workers[role] = (stack.enter_context(closing(self.start(self.arms[role]))), started)
            for role in launch.start_order:
                for position in range(discard):
                    self.warm_up(part, role, launch.number, position, workers[role], attempt)
            quads = []
            for quad in launch.quads:
                for again in range(attempt, attempt + repeats + 1):
                    taken = []
                    for position, role in enumerate(quad.roles):
                        self.tick(f"{part} launch {launch.number + 1}, quad {quad.block + 1} {quad.order}: {role}")
                        place = (launch.number, quad.block, position, quad.order)
                        taken.append(self.take(part, role, *place, workers[role], attempt=again)[0])
                    result = QuadResult(launch.number, quad.block, tuple(taken), judge_quad(taken))
                    if result.valid:
                        break
                quads.append(result)
            return quads

    def warm_up(
        self, part: Part, role: Role, launch: int, position: int, worker: tuple[Asked, float], attempt: int = 0
    ) -> Sample:
        """One discarded sample, recorded as such. Here a lever that is not on ends the run."""
        self.tick(f"{part} launch {launch + 1}: first sample of {role}")
        sample, trace = self.take(part, role, launch, -1, position, "", worker, warm_up=True, attempt=attempt)
        if not sample.valid:
            raise LeverNotApplied(f"{role}: {sample.why}")
        self.inspect(role, trace)
        return sample

    def take(
        self,
        part: Part,
        role: Role,
        launch: int,
        block: int,
        position: int,
        order: str,
        worker: tuple[Asked, float],
        *,
        warm_up: bool = False,
        attempt: int = 0,
    ) -> tuple[Sample, Trace]:
        """One sample, recorded at once."""
        probe = self.place(self.probe, part, block, position, attempt)
        before, t0 = self.read_sensors(), self.clock()
        trace = worker[0].probe(probe)
        t1, after = self.clock(), self.read_sensors()
        doc = trace.doc
        for name in DURATIONS:
            if not doc[name] > 0:
                raise errors.InvalidValue(f"{name} of {role}", doc[name], "a number above 0")
        why = self.broken_rule(role, trace, probe)
        sample = Sample(
            part=part,
            role=role,
            launch=launch,
            block=block,
            position=position,
            order=order,
            warm_up=warm_up,
            pid=worker[0].pid,
            process_started=worker[1],
            t0=t0,
            t1=t1,
            prompt_tokens=doc["prompt_tokens"],
            decode_tokens=doc["decode_tokens"],
            cache_tokens=max(
                (cache["offset"] - doc.get("ahead", 0) for cache in doc["caches"] if not is_state(cache)), default=0
            ),
            decode_tok_s=doc["decode_tokens"] / doc["decode_s"],
            prefill_tok_s=doc["prompt_tokens"] / doc["prefill_s"],
            ttft_ms=1000 * doc["ttft_s"],
            peak_bytes=doc["peak_bytes"],
            rss_bytes=doc["rss_bytes"],
            kv_bytes=doc["kv_bytes"],
            lever=str(doc["kv_status"]),
            load1=after.load1,
            steal=sensors.steal_share(before, after),
            valid=not why,
            why=why,
            attempt=attempt,
        )
        sample = self.extend(sample, trace)
        self.record(sample)
        return sample, trace

    def broken_rule(self, role: Role, trace: Trace, probe: TimedProbe) -> str:
        """Which rule a sample breaks; "" for none. The rules see neither the duration nor which arm it is."""
        try:
            require_scheme(trace, self.arms[role].kv)
        except SchemeNotLive as error:
            return f"lever not applied: {error}"
        idle = idle_levers(trace, self.arms[role])
        if idle:
            return f"lever not applied: {idle}"
        if isinstance(probe, CacheProbe) and trace.doc["kv_stepped"] != trace.doc["kv_status"]:
            return f"lever not applied: the steps began with {trace.doc['kv_stepped']!r}"
        if trace.doc["prompt_tokens"] != len(probe.token_ids):
            return f"prompt of {trace.doc['prompt_tokens']} tokens instead of {len(probe.token_ids)}"
        return ""
