"""Measures one session, step by step: pre-flight, pilot, A/A, A/B. What a step finds stands in the database when it
ends, and a step that stands there already is not made again, so that a session can go on after its process has died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lab import fingerprint, judge, sensors, stability, workloads
from lab.config import LabConf
from lab.design import Plan, Quad, Role, make_plan
from lab.diversity import self_bleu
from lab.evidence import Events, aa_quads, shared_aa
from lab.fidelity import Progress
from lab.forecast import fit, forecast
from lab.judge import Comparison
from lab.measure import Bench, Part, QuadResult, Sample, Start, TimedProbe
from lab.record import SessionRecord, read_samples
from lab.store import Store
from lab.tables import SessionRow
from lab.verdict import metrics
from oracles.contract import DrawProbe, StackConfig, Trace

Say = Callable[[str], None]


class MeasuringSession:
    """One session on its way. `seeds`: of the coins of "aa" and "ab"; `model`: the folder that both arms load."""

    def __init__(
        self,
        conf: LabConf,
        arms: Mapping[Role, StackConfig],
        token_ids: Sequence[int],
        print_: fingerprint.Fingerprint,
        seeds: Mapping[str, int],
        *,
        say: Say,
        progress: Progress,
        start: Start,
        clock: Callable[[], float],
    ) -> None:
        self.conf, self.arms, self.print, self.seeds = conf, dict(arms), print_, seeds
        self.token_ids = tuple(token_ids)
        self.say, self.progress, self.start, self.clock = say, progress, start, clock
        self.prints: dict[Role, fingerprint.ArmPrint] = {}
        sizes = conf.profile.prompt_tokens, conf.profile.max_tokens
        self.prompts = workloads.prompts_of(conf.workload, sizes[0], self.token_ids)
        self.probe = workloads.probe_of(conf.workload, *sizes, self.token_ids)
        self.files = model_files(Path(arms["base"].model))
        self.before = sensors.read()
        self.clocks: list[float | None] = []

    def measure(self, store: Store, record: SessionRecord) -> float:
        """Every step that is still to be made, the KL gate apart; returns the minutes that were expected."""
        row = store.rows(SessionRow, id=record.session_id)[0]
        self.sense(record, "preflight")
        expected = self.pilot(store, record)
        if Events.of(store, row.id).last("ab-done") is None:
            self.ab(store, record, self.aa(store, record, row))
        self.sense(record, "postflight")
        self.require_same_source()
        return expected

    def sense(self, record: SessionRecord, when: str) -> None:
        """Look at the machine; before anything of ours runs, for a second."""
        if when == "preflight":
            time.sleep(1.0)
        now, cores = sensors.read(), int(self.print.machine["cores"])
        found = sensors.judge(self.before, now, self.conf.machine, cores=cores, lost=sensors.speed_lost())
        record.event(when, {"sensors": [s.__dict__ for s in found]})
        self.say(f"{when}: {', '.join(map(str, found))}")

    def require_same_source(self) -> None:
        """Raise `NotPairable` if the arms' source or the model changed: later launches were another thing then."""
        changed = []
        if fingerprint.arms_sha256() != self.print.code.arms_sha256:
            changed.append(f"the source of {' or '.join(fingerprint.ARM_PACKAGES)}")
        if model_files(Path(self.arms["base"].model)) != self.files:
            changed.append("the model's files")
        if changed:
            raise fingerprint.NotPairable(f"{' and '.join(changed)} changed while the session was measured")

    def notes(self, store: Store, record: SessionRecord) -> list[str]:
        """What was cut to fit."""
        return list((Events.of(store, record.session_id).last("fitted") or {}).get("notes", ()))

    def read_sensors(self) -> sensors.Reading:
        """A reading, whose clock is kept: before a sample, and behind it."""
        found = sensors.read()
        self.clocks.append(found.clock_mhz)
        return found

    def note_clocks(self, record: SessionRecord, part: str) -> None:
        """The clock behind each sample of a part. On another device than the CPU it says nothing, and is not noted."""
        behind = [mhz for mhz in self.clocks[1::2] if mhz is not None]
        if behind and self.print.machine["device"] == "cpu":
            record.event("clocks", {"part": part, "mhz": behind})
        self.clocks.clear()

    def bench(self, record: SessionRecord, arms: Mapping[Role, StackConfig], part: str, samples: int) -> Bench:
        """A bench on `arms` whose progress counts `samples`."""
        seen = [0]
        self.prints.clear()

        def tick(_what: str) -> None:
            self.progress(part, seen[0], samples)
            seen[0] += 1

        def inspect(role: Role, trace: Trace) -> None:
            self.prints[role] = fingerprint.ArmPrint.of(arms[role], trace)
            if len(self.prints) == 2:
                base, candidate = self.prints["base"], self.prints["candidate"]
                fingerprint.require_pairable(base, candidate, self.conf.experiment.lever)
                if base.machine_key != self.print.machine_key:
                    raise fingerprint.NotPairable(
                        f"the workers run on {base.machine_key}, this process on {self.print.machine_key}"
                    )
                self.prints.clear()

        return Bench(
            arms=arms,
            probe=self.probe,
            start=self.start,
            record=record.sample,
            tick=tick,
            inspect=inspect,
            extend=extended,
            read_sensors=self.read_sensors,
            clock=self.clock,
            place=self.place,
        )

    def place(self, probe: TimedProbe, part: Part, block: int, position: int, attempt: int) -> TimedProbe:
        """What one sample asks: continuations have the prompt of their quad and seeds of their own."""
        if not isinstance(probe, DrawProbe):
            return probe
        seed = self.seeds["ab" if part == "pilot" else part]
        return workloads.for_sample(self.prompts, probe, seed, block, position, attempt)

    def both_base(self) -> dict[Role, StackConfig]:
        return {"base": self.arms["base"], "candidate": self.arms["base"]}

    def pilot(self, store: Store, record: SessionRecord) -> float:
        """Samples of the base that are thrown away, until two windows of them agree; the last one foretells the time.

        Returns the expected minutes. A session that went past its pilot keeps what was cut then.
        """
        known = Events.of(store, record.session_id).last("fitted")
        if known is not None:
            return float(known["expected_s"]) / 60
        p, limit = self.conf.profile, self.conf.machine.steady_limit
        least = stability.LEAST_WARM + 2 * p.steady_window
        bench = self.bench(record, self.both_base(), "pilot", least)
        begin = self.clock()
        worker = self.start(self.arms["base"])
        taken: list[Sample] = []
        attempt = 1 + max((s.attempt for s in read_samples(store, record.session_id)), default=-1)
        try:
            while len(taken) < least or (
                p.steady_window
                and len(taken) < p.steady_cap
                and not stability.is_steady([s.sample_s for s in taken], p.steady_window, limit)
            ):
                taken.append(bench.warm_up("pilot", "base", 0, len(taken), (worker, begin), attempt))
        finally:
            worker.close()
        self.progress("pilot", least, least)
        self.clocks.clear()
        if p.steady_window:
            steady = stability.is_steady([s.sample_s for s in taken], p.steady_window, limit)
            self.say(f"{'steady' if steady else 'no steady state'} after {len(taken)} samples")
        notes = fit(self.conf, taken[-1])
        expected_s = forecast(self.conf, taken[-1]).seconds(p.aa_quads, self.conf.quads, self.conf)
        for note in notes:
            self.say(note)
        self.say(f"expected: {expected_s / 60:.1f} minutes (a sample takes {taken[-1].sample_s:.1f} s)")
        detail = {"notes": notes, "expected_s": expected_s, "profile": asdict(self.conf.profile)}
        record.event("fitted", detail | {"attempt": attempt})
        return expected_s / 60

    def _plan(self, part: str, quads: int) -> tuple[Plan, int]:
        p = self.conf.profile
        plan = make_plan(self.seeds[part], quads, min(p.quads_per_launch, quads))
        return plan, 4 * quads + 2 * p.discard * len(plan.launches)

    def aa(self, store: Store, record: SessionRecord, row: SessionRow) -> dict[str, Comparison]:
        """The base against itself, through the same code path, or another session's A/A that serves this one too.

        Metric -> what it showed.
        """
        p, samples = self.conf.profile, read_samples(store, row.id)
        own = any(s.part == "aa" for s in samples)
        if not own and Events.of(store, row.id).last("aa-shared") is None:
            other = shared_aa(store, row, self.conf)
            if other is not None:
                record.event("aa-shared", {"session": other.uid})
        quads, _, owner = aa_quads(store, row, samples)
        if owner:
            self.say(f"A/A: {len(quads)} quads of session {owner}, which has the same base, workload, machine and code")
        else:
            plan, total = self._plan("aa", p.aa_quads)
            self.say(f"A/A: {_sizes(plan)}, orders {' '.join(q.order for q in _quads(plan))}")
            bench = self.bench(record, self.both_base(), "A/A", total)
            part = bench.part("aa", plan, discard=p.discard, repeats=p.repeats, before=samples)
            self.progress("A/A", total, total)
            self.note_clocks(record, "aa")
            record.invalid("aa", part.quads)
            quads = list(part.quads)
            record.event("aa-done", {"quads": len(quads)})
        found = {m: judge.take_aa(self.conf, quads, m) for m in metrics(self.conf)}
        for metric, comparison in found.items():
            self.say(f"  A/A {metric}: {comparison.state}; {comparison.why}")
            if comparison.look is not None and comparison.look.launches >= 2:
                mde = judge.stats.mde(comparison.look.sd, judge.planned_launches(self.conf))
                self.say(f"    smallest effect that {self.conf.quads} quads would find: {100 * mde:.1f} %")
        return found

    def ab(self, store: Store, record: SessionRecord, aa: dict[str, Comparison]) -> None:
        """Base against candidate, with the planned looks and the cap; an earlier process may have used some of it."""
        p = self.conf.profile
        plan, total = self._plan("ab", self.conf.quads)
        before = [s for s in read_samples(store, record.session_id) if s.part == "ab"]
        self.say(f"A/B: up to {_sizes(plan)}, orders {' '.join(q.order for q in _quads(plan))}")

        def at_look(quads: list[QuadResult]) -> bool:
            why = judge.stops(self.conf, quads, aa)
            if why:
                record.event("look", {"quads": len(quads), "stopped": why})
                self.say(f"  stopped: {why}")
            return bool(why)

        part = self.bench(record, self.arms, "A/B", total).part(
            "ab",
            plan,
            discard=p.discard,
            deadline=self.clock() + 60 * p.cap_minutes - spent_s(before),
            at_look=at_look,
            repeats=p.repeats,
            before=before,
        )
        self.progress("A/B", total, total)
        self.note_clocks(record, "ab")
        record.invalid("ab", part.quads)
        record.event("ab-done", {"stopped": part.stopped, "quads": len(part.quads)})


def extended(sample: Sample, trace: Trace) -> Sample:
    """A sample with what its workload adds: the throughput of rows, how alike continuations are."""
    doc = trace.doc
    if "whole_s" in doc:
        return replace(sample, agg_tok_s=(doc["rows"] + sample.decode_tokens) / doc["whole_s"])
    return replace(sample, self_bleu=self_bleu(doc["drawn"])) if "drawn" in doc else sample


def spent_s(samples: Sequence[Sample]) -> float:
    """Seconds that the launches of these samples took, from the start of their processes to their last sample."""
    begin: dict[tuple[int, int], float] = {}
    end: dict[tuple[int, int], float] = {}
    for s in samples:
        # A repeat of a quad has another attempt in the same processes; the union is what counts.
        key = (s.launch, s.pid)
        begin[key] = min(begin.get(key, s.process_started), s.process_started)
        end[key] = max(end.get(key, s.t1), s.t1)
    spans = sorted((begin[key], end[key]) for key in begin)
    total, reached = 0.0, -1.0
    for first, last in spans:
        total += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    return total


def model_files(folder: Path) -> Mapping[str, Any]:
    """Size and time of each weights file and the config: what changes when somebody writes to the model."""
    names = [*folder.glob("model*.safetensors"), folder / "config.json"]
    found = {path.name: path.stat() for path in names if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def _quads(plan: Plan) -> list[Quad]:
    return [quad for launch in plan.launches for quad in launch.quads]


def _sizes(plan: Plan) -> str:
    return f"{judge.several(plan.quads, 'quad')} in {judge.several(len(plan.launches), 'launch')}"
