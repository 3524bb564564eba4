"""One experiment, end to end: declare, pre-flight, pilot, A/A, A/B, KL gate, statistics, decision.

Nothing is decided in here: `lab.judge` and `lab.decide` are pure, and this module hands them what it measured.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from engine import load_tokenizer, resolve_model
from lab import fingerprint, judge, sensors
from lab.config import COUNTED, LabConf, compose
from lab.decide import PRIMARIES, Facts, Primary, decide
from lab.design import Plan, Quad, Role, make_plan, session_seed
from lab.fidelity import FidelityRun, Progress, gate_of, run_gate
from lab.forecast import fit, forecast
from lab.judge import Comparison
from lab.measure import Bench, PartResult, QuadResult, Sample, Start
from lab.record import SessionRecord
from lab.store import Store
from oracles.client import Worker
from oracles.contract import StackConfig, TimeProbe, Trace

Say = Callable[[str], None]
Gate = Callable[[LabConf, Path, StackConfig, StackConfig, Progress], list[FidelityRun]]


@dataclass(frozen=True)
class RunResult:
    """A finished run. `row` and `verdict` are the decision table's; `expected_min` was said before the first quad."""

    experiment: str
    profile: str
    machine_key: str
    session: str
    row: str
    verdict: str
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    fidelity: tuple[FidelityRun, ...]
    notes: tuple[str, ...]
    samples: int
    expected_min: float
    seconds: float
    folder: Path
    database: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON; the long KL documents stay in the database and in result.json."""
        fields = {k: v for k, v in self.__dict__.items() if k not in ("folder", "fidelity")}
        kl = [{k: v for k, v in run.__dict__.items() if k != "document"} for run in self.fidelity]
        found: dict[str, Any] = judge.document(fields | {"fidelity": kl})
        return found | {"folder": str(self.folder)}


def start_worker(config: StackConfig) -> Worker:
    """A real worker; its model loads while the other one's does."""
    return Worker(config, wait=False)


def new_folder(out: Path, name: str) -> tuple[str, Path]:
    """(session id, its own folder): made exclusively, so that two runs can never share one."""
    uid = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    folder = out / name / uid
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    return uid, folder


def write_json(path: Path, document: object) -> None:
    """Write under a temporary name, then rename."""
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def run_experiment(
    name: str,
    *,
    profile: str = "full",
    overrides: Sequence[str] = (),
    blas: str = "bundled",
    say: Say = lambda _line: None,
    progress: Progress = lambda _label, _done, _total: None,
    url: str | None = None,
    out: Path = Path("outputs"),
    experiments: Path | None = None,
    start: Start = start_worker,
    gate: Gate = run_gate,
    as_of: date | None = None,
    clock: Callable[[], float] = time.time,
) -> RunResult:
    """Run one experiment and decide. `blas`: "bundled" or "openblas", of the workers and of this process.

    A failure is recorded in the database before its error passes on; it never becomes a verdict.
    Errors: what `compose`, the workers and the gate raise; `LeverNotApplied`, `NotPairable`.
    """
    begin = time.monotonic()
    conf = compose(name, [f"profile={profile}", *overrides], folder=experiments)
    model = Path(resolve_model(conf.model, progress=progress))
    run = Run(conf, model, blas, say, progress, start, as_of or datetime.now(UTC).date(), clock)
    uid, folder = new_folder(out, name)
    (folder / "config.yaml").write_text(conf.as_yaml(), encoding="utf-8")
    with Store.open(url) as store, run.record(store, uid, folder) as record:
        run.preflight(record)
        pilot = run.pilot(record)
        notes = fit(conf, pilot)
        expected_s = forecast(conf, pilot).seconds(conf.profile.aa_quads, conf.quads, conf)
        for note in notes:
            say(note)
        say(f"expected: {expected_s / 60:.1f} minutes (a sample takes {pilot.sample_s:.1f} s)")
        record.event("fitted", {"notes": notes, "expected_s": expected_s, "profile": asdict(conf.profile)})
        aa = run.aa(record)
        part = run.ab(record, aa)
        say(f"KL gate, class {conf.experiment.quality_class}")
        kl = gate(conf, model, run.arms["base"], run.arms["candidate"], progress)
        fidelity_ids = [record.fidelity(result) for result in kl]
        run.postflight(record)
        comparisons, facts = run.facts(store, record, aa, part, kl, pilot)
        decision = decide(facts)
        comparison_ids = record.comparisons(comparisons)
        evidence = [{"comparison": comparison_ids, "fidelity": fidelity_ids}]
        record.decision(decision, facts, run.print.machine_key, run.as_of.isoformat(), evidence)
        result = RunResult(
            experiment=name,
            profile=conf.profile.name,
            machine_key=run.print.machine_key,
            session=uid,
            row=decision.row,
            verdict=decision.verdict,
            reasons=(*decision.reasons, *run.why(comparisons, kl)),
            comparisons=tuple(comparisons),
            fidelity=tuple(kl),
            notes=(*notes, *run.notes),
            samples=record.samples,
            expected_min=expected_s / 60,
            seconds=time.monotonic() - begin,
            folder=folder,
            database=store.url,
        )
        write_json(folder / "result.json", result.as_dict() | {"kl": [r.document for r in kl]})
        record.artifact(folder / "result.json")
    return result


class Run:
    """The state of one run between its steps. `notes`: what the reader must know and no row says."""

    def __init__(
        self,
        conf: LabConf,
        model: Path,
        blas: str,
        say: Say,
        progress: Progress,
        start: Start,
        as_of: date,
        clock: Callable[[], float],
    ) -> None:
        e = conf.experiment
        self.conf, self.model, self.say, self.progress, self.as_of = conf, model, say, progress, as_of
        self.start, self.clock = start, clock
        self.print = fingerprint.take()
        self.arms: dict[Role, StackConfig] = {
            "base": e.base.stack_config(str(model), blas),
            "candidate": e.candidate.stack_config(str(model), blas),
        }
        self.prints: dict[Role, fingerprint.ArmPrint] = {}
        self.notes: list[str] = []
        self.token_ids = tuple(self._prompt(conf.profile.prompt_tokens))
        self.seeds: dict[str, int] = {}
        self.before = sensors.read()

    def _prompt(self, tokens: int) -> list[int]:
        from evals import corpus

        return corpus.sequences(load_tokenizer(self.model), 1, tokens)[0]

    def record(self, store: Store, uid: str, folder: Path) -> SessionRecord:
        name = self.conf.experiment.name
        self.seeds = {part: session_seed(name, uid, part) for part in ("pilot", "aa", "ab")}
        return SessionRecord(
            store,
            self.conf,
            self.print,
            uid=uid,
            folder=folder,
            as_of=self.as_of.isoformat(),
            arms=self.arms,
            model_sha256=fingerprint.model_sha256(self.model),
            token_ids=self.token_ids,
            seeds=self.seeds,
        )

    def bench(self, record: SessionRecord, arms: dict[Role, StackConfig], part: str, samples: int) -> Bench:
        """A bench on `arms` whose progress counts `samples`."""
        seen = [0]

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

        probe = TimeProbe(token_ids=self.token_ids, max_tokens=self.conf.profile.max_tokens)
        return Bench(
            arms=arms,
            probe=probe,
            start=self.start,
            record=record.sample,
            tick=tick,
            inspect=inspect,
            clock=self.clock,
        )

    def preflight(self, record: SessionRecord) -> None:
        """Look at the machine for a second before anything of ours runs."""
        time.sleep(1.0)
        self._sense(record, "preflight", self.before, sensors.read())

    def postflight(self, record: SessionRecord) -> None:
        self._sense(record, "postflight", self.before, sensors.read())

    def _sense(self, record: SessionRecord, when: str, before: sensors.Reading, after: sensors.Reading) -> None:
        found = sensors.judge(before, after, self.conf.machine, cores=int(self.print.machine["cores"]))
        record.event(when, {"sensors": [s.__dict__ for s in found]})
        self.say(f"{when}: {', '.join(map(str, found))}")
        self.notes += [f"{when}: {sensor}" for sensor in found if sensor.status != "ok"]

    def pilot(self, record: SessionRecord) -> Sample:
        """Two thrown-away samples of the base: the second foretells the minutes."""
        base: dict[Role, StackConfig] = {"base": self.arms["base"], "candidate": self.arms["base"]}
        bench = self.bench(record, base, "pilot", 2)
        begin = self.clock()
        worker = self.start(self.arms["base"])
        try:
            for position in range(2):
                sample = bench.warm_up("pilot", "base", 0, position, (worker, begin))
        finally:
            worker.close()
        self.progress("pilot", 2, 2)
        return sample

    def _plan(self, part: str, quads: int) -> tuple[Plan, int]:
        p = self.conf.profile
        plan = make_plan(self.seeds[part], quads, min(p.quads_per_launch, quads))
        return plan, 4 * quads + 2 * p.discard * len(plan.launches)

    def aa(self, record: SessionRecord) -> dict[str, Comparison]:
        """The base against itself, through the same code path. Metric -> what it showed."""
        p = self.conf.profile
        plan, total = self._plan("aa", p.aa_quads)
        self.say(f"A/A: {_sizes(plan)}, orders {' '.join(q.order for q in _quads(plan))}")
        base: dict[Role, StackConfig] = {"base": self.arms["base"], "candidate": self.arms["base"]}
        self.prints.clear()
        part = self.bench(record, base, "A/A", total).part("aa", plan, discard=p.discard)
        self.progress("A/A", total, total)
        record.invalid("aa", part.quads)
        found = {m: judge.take_aa(self.conf, part.quads, m) for m in self._metrics()}
        for metric, comparison in found.items():
            self.say(f"  A/A {metric}: {comparison.state}; {comparison.why}")
            if comparison.look is not None and comparison.look.launches >= 2:
                mde = judge.stats.mde(comparison.look.sd, judge.planned_launches(self.conf))
                self.say(f"    smallest effect that {self.conf.quads} quads would find: {100 * mde:.1f} %")
        return found

    def _metrics(self) -> list[str]:
        e = self.conf.experiment
        return [e.primary, *e.guardrails]

    def ab(self, record: SessionRecord, aa: dict[str, Comparison]) -> PartResult:
        """Base against candidate, with the planned looks and the cap."""
        p = self.conf.profile
        plan, total = self._plan("ab", self.conf.quads)
        self.say(f"A/B: up to {_sizes(plan)}, orders {' '.join(q.order for q in _quads(plan))}")
        self.prints.clear()

        def at_look(quads: list[QuadResult]) -> bool:
            why = judge.stops(self.conf, quads, aa)
            if why:
                record.event("look", {"quads": len(quads), "stopped": why})
                self.say(f"  stopped: {why}")
            return bool(why)

        part = self.bench(record, self.arms, "A/B", total).part(
            "ab", plan, discard=p.discard, deadline=self.clock() + 60 * p.cap_minutes, at_look=at_look
        )
        self.progress("A/B", total, total)
        record.invalid("ab", part.quads)
        self.notes += [f"A/B quad {q.block + 1} is invalid: {q.why}" for q in part.quads if not q.valid]
        return part

    def facts(
        self,
        store: Store,
        record: SessionRecord,
        aa: dict[str, Comparison],
        part: PartResult,
        kl: Sequence[FidelityRun],
        pilot: Sample,
    ) -> tuple[list[Comparison], Facts]:
        """Every comparison, and the facts they make."""
        conf, e = self.conf, self.conf.experiment
        capped = part.stopped == "time"
        primary = judge.compare_primary(conf, part.quads, time_capped=capped)
        rails = [judge.compare_guardrail(conf, part.quads, m, aa[m]) for m in e.guardrails]
        self.notes += judge.cell_findings(conf, list(aa.values()), pilot.sample_s)
        counted = e.primary in COUNTED
        unsteady = primary.counted is not None and not primary.counted.steady
        sessions = [s for s in store.sessions(e.name) if s.profile == conf.profile.name]
        done = sum(store.outcome(s.id) == "finished" for s in sessions) + 1
        expired = self.as_of > date.fromisoformat(e.expires_on)
        spent = done >= conf.thresholds.max_sessions and len(part.quads) >= conf.quads
        facts = Facts(
            kind="oracle-owned" if e.kind == "oracle-owned" else "ours",
            machine="shared" if conf.machine.name == "shared" else "quiet",
            quick=not conf.profile.decides,
            gate=gate_of(kl),
            cell="unstable" if unsteady else "not built",
            aa_failed=aa[e.primary].state == "differ",
            primary=_primary(primary),
            guardrails=judge.guardrails_state(rails),
            confirmed="not built",
            removes_code=False,
            on_frontier=False,
            exhausted=expired or spent,
            counted=counted,
            time_capped=capped,
            identical=bool(kl) and all(run.kl_max == 0 for run in kl),
            strong=primary.look is not None and primary.look.low >= conf.delta,
            others_no=self._others_no(store),
            opt_in_only=bool(kl) and all(run.status == "PASS" for run in kl) and not all(r.may_be_default for r in kl),
        )
        return [primary, *rails, *aa.values()], facts

    def _others_no(self, store: Store) -> bool:
        """Whether each other target key has a latest decision that says no."""
        latest = {d.machine_key: d.verdict for d in store.decisions(self.conf.experiment.name)}
        others = [t for t in self.conf.experiment.targets if not self.print.machine_key.startswith(t)]
        said_no = [key for key, verdict in latest.items() if verdict.startswith(("no gain", "not default", "delete"))]
        return all(any(key.startswith(target) for key in said_no) for target in others)

    def why(self, comparisons: Sequence[Comparison], kl: Sequence[FidelityRun]) -> tuple[str, ...]:
        """The numbers behind the decision, one line each."""
        lines = [f"{c.use} {c.metric}: {c.state}; {c.why}" for c in comparisons if c.use != "aa"]
        return (*lines, *(f"KL gate {self.conf.experiment.quality_class}: {run.words}" for run in kl))


def _quads(plan: Plan) -> list[Quad]:
    return [quad for launch in plan.launches for quad in launch.quads]


def _sizes(plan: Plan) -> str:
    return f"{judge.several(plan.quads, 'quad')} in {judge.several(len(plan.launches), 'launch')}"


def _primary(comparison: Comparison) -> Primary:
    """The state of a primary; its type says more than `Comparison.state` does."""
    return next(state for state in PRIMARIES if state == comparison.state)
