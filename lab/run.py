"""One experiment, end to end: declare, measure, KL gate, decide; the same for its confirmation, and for a session that
goes on after its process has died.

Nothing is decided in here: `lab.verdict` and `lab.decide` are pure, and what they judge is read back from the database.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from engine import load_tokenizer, resolve_model
from lab import confirm, fingerprint, judge, resume
from lab.clock import SteadyClock
from lab.config import LabConf, compose, names
from lab.deciding import record_decision, record_exploration
from lab.declared import EXPLORE, choices, overridden
from lab.design import Role, session_seed
from lab.evidence import fidelity_runs, otherwise, overrides_of
from lab.expiry import require_unexpired
from lab.fidelity import FidelityRun, Progress
from lab.gates import run_gate
from lab.judge import Comparison, gate_words
from lab.lock import hold_timing
from lab.measure import Start
from lab.record import NewSession, SessionRecord
from lab.session import MeasuringSession, Say
from lab.store import Store
from lab.tables import SessionRow
from lab.workloads import tokens_of_session
from oracles.client import Worker
from oracles.contract import StackConfig

Gate = Callable[[LabConf, Path, StackConfig, StackConfig, Progress], list[FidelityRun]]


@dataclass(frozen=True)
class RunResult:
    """A finished run. `row` and `verdict` are the decision table's; `expected_min` was said before the first quad.

    otherwise: what was told otherwise than declared; such a run is exploratory, its verdict says so first, and no
    decision is written of it.
    """

    experiment: str
    profile: str
    purpose: str
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
    otherwise: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON; the long KL documents stay in the database and in result.json."""
        fields = {k: v for k, v in self.__dict__.items() if k not in ("folder", "fidelity")}
        kl = [{k: v for k, v in run.__dict__.items() if k != "document"} for run in self.fidelity]
        found: dict[str, Any] = judge.document(fields | {"fidelity": kl})
        return found | {"folder": str(self.folder)}


def start_worker(config: StackConfig) -> Worker:
    """A real worker; its model loads while the other one's does."""
    return Worker(config, wait=False)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a session is measured in; tests put invented parts here. `url`: of the database; `lock`: the file that
    keeps a second timing run out, None for the machine's."""

    blas: str = "bundled"
    say: Say = lambda _line: None
    progress: Progress = lambda _label, _done, _total: None
    url: str | None = None
    out: Path = Path("outputs")
    start: Start = start_worker
    gate: Gate = run_gate
    as_of: date | None = None
    clock: Callable[[], float] = field(default_factory=SteadyClock)
    lock: Path | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    begin: float = field(default_factory=time.monotonic)

    @property
    def day(self) -> date:
        return self.as_of or datetime.now(UTC).date()


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


def prompt_ids(model: Path, number: int, tokens: int) -> list[int]:
    """The token ids of a session: text `number` of the frozen set, and those behind it where it is too short."""
    from evals import corpus

    return corpus.prompt(load_tokenizer(model), number, tokens)


def stack_configs(conf: LabConf, model: Path, blas: str) -> dict[Role, StackConfig]:
    """Both arms as their workers load them."""
    e = conf.experiment
    return {
        "base": e.base.stack_config(str(model), blas),
        "candidate": e.candidate.stack_config(str(model), blas),
    }


def run_experiment(
    name: str,
    *,
    profile: str = "full",
    overrides: Sequence[str] = (),
    experiments: Path | None = None,
    **surroundings: Any,
) -> RunResult:
    """Run one experiment and decide; with overrides that change what is declared, explore. `surroundings`: fields of
    `Surroundings`.

    A failure is recorded in the database before its error passes on; it never becomes a verdict.
    Errors: what `compose`, the workers and the gate raise; `LeverNotApplied`, `NotPairable`, `SessionsSpent`,
    `TimingBusy`.
    """
    around = Surroundings(**surroundings)
    conf = compose(name, [f"profile={profile}", *overrides], folder=experiments)
    told = overridden(conf, compose(name, [f"profile={profile}", *choices(overrides)], folder=experiments))
    with hold_timing(f"frontier lab run {name}", around.lock):
        model = Path(resolve_model(conf.model, progress=around.progress))
        print_ = fingerprint.take()
        arms = stack_configs(conf, model, around.blas)
        token_ids = prompt_ids(model, 0, tokens_of_session(conf.workload, conf.profile.prompt_tokens))
        with Store.open(around.url) as store:
            if told:
                around.say(f"exploratory, no evidence for {name}: {'; '.join(told)}")
                noted = {"exploratory": {"otherwise": told}}
                return _new_session(store, conf, arms, token_ids, print_, EXPLORE, noted, around)
            resume.require_sessions_left(store, conf, print_)
            for row in resume.unfinished(store, name):
                around.say(f"session {row.uid} did not end: frontier lab resume {name} goes on with it")
            return _new_session(store, conf, arms, token_ids, print_, "search", {}, around)


def confirm_experiment(name: str, **surroundings: Any) -> RunResult:
    """Measure the confirmation that the newest decision on this machine asks for, and decide.

    Its configuration is the search session's, with the quads of a confirmation and another prompt.
    Errors: `NotConfirmable`, and those of `run_experiment`.
    """
    around = Surroundings(**surroundings)
    with Store.open(around.url) as store:
        print_ = fingerprint.take()
        asked = confirm.pending(store, name, print_.machine_key)
        require_declared(store, name, asked.search)
        confirm.require_time_apart(store, asked, print_, around.now())
        require_unexpired(asked.conf, around.now().date())
        conf = confirm.confirming_conf(store, asked.conf)
        model = Path(resolve_model(conf.model, progress=around.progress))
        arms = stack_configs(conf, model, around.blas)
        confirm.require_same(store, asked.search, print_, arms, conf.model, fingerprint.model_sha256(model))
        token_ids = prompt_ids(model, asked.number, tokens_of_session(conf.workload, conf.profile.prompt_tokens))
        confirms = {"session": asked.search.uid, "decision": asked.decision_id, "prompt": asked.number}
        noted = {"confirms": confirms}
        with hold_timing(f"frontier lab confirm {name}", around.lock):
            return _new_session(store, conf, arms, token_ids, print_, "confirm", noted, around)


def require_declared(store: Store, name: str, search: SessionRow) -> None:
    """Raise `NotConfirmable` where the file declares another experiment by now than the one that was measured."""
    if name in names():
        why = otherwise(store, search, compose(name, [f"profile={search.profile}"]))
        if why:
            raise confirm.NotConfirmable(
                f"{name}: nothing to confirm; {why}; search again with frontier lab run {name}"
            )


def resume_experiment(name: str, uid: str | None = None, **surroundings: Any) -> RunResult:
    """Go on with a session that did not end: `uid`, else the newest one. What it measured is kept.

    Errors: `NotResumable`, and those of `run_experiment`.
    """
    around = Surroundings(**surroundings)
    with Store.open(around.url) as store:
        left = resume.find(store, name, uid)
        require_unexpired(left.conf, around.now().date())
        print_ = fingerprint.take()
        model = Path(resolve_model(left.conf.model, progress=around.progress))
        arms = stack_configs(left.conf, model, around.blas)
        resume.require_same(store, left.row, print_, arms, left.conf.model, fingerprint.model_sha256(model))
        # A session that another process is measuring looks like one that was left; that process has the lock.
        with (
            hold_timing(f"frontier lab resume {name}", around.lock),
            SessionRecord.reopen(store, left.row, left.arm_ids) as record,
        ):
            around.say(f"session {left.row.uid}: {left.words}")
            record.event("resumed", {"samples": record.samples})
            return _finish(store, record, left.conf, arms, left.token_ids, print_, left.row, around)


def _new_session(
    store: Store,
    conf: LabConf,
    arms: Mapping[Role, StackConfig],
    token_ids: Sequence[int],
    print_: fingerprint.Fingerprint,
    purpose: str,
    noted: Mapping[str, Mapping[str, Any]],
    around: Surroundings,
) -> RunResult:
    name = conf.experiment.name
    model_sha256 = fingerprint.model_sha256(Path(arms["base"].model))
    uid, folder = new_folder(around.out, name)
    yaml = conf.as_yaml()
    (folder / "config.yaml").write_text(yaml, encoding="utf-8")
    new = NewSession(
        conf=conf,
        yaml=yaml,
        print=print_,
        uid=uid,
        purpose=purpose,
        folder=folder,
        as_of=around.day.isoformat(),
        arms=arms,
        model_sha256=model_sha256,
        token_ids=token_ids,
        seeds={part: session_seed(name, uid, part) for part in ("aa", "ab")},
    )
    with SessionRecord.begin(store, new) as record:
        for event, detail in noted.items():
            record.event(event, detail)
        row = store.rows(SessionRow, id=record.session_id)[0]
        return _finish(store, record, conf, arms, token_ids, print_, row, around)


def _finish(
    store: Store,
    record: SessionRecord,
    conf: LabConf,
    arms: Mapping[Role, StackConfig],
    token_ids: Sequence[int],
    print_: fingerprint.Fingerprint,
    row: SessionRow,
    around: Surroundings,
) -> RunResult:
    """Measure what is missing, then decide from the database."""
    seeds = {"aa": int(row.aa_seed), "ab": int(row.ab_seed)}
    say, progress = around.say, around.progress
    session = MeasuringSession(
        conf, arms, token_ids, print_, seeds, say=say, progress=progress, start=around.start, clock=around.clock
    )
    expected_min = session.measure(store, record)
    if row.purpose != "confirm" and not fidelity_runs(store, row):
        say(gate_words(conf))
        record.fidelity(around.gate(conf, Path(arms["base"].model), arms["base"], arms["candidate"], progress))
    record.event("measured", {"samples": record.samples})
    name = conf.experiment.name
    explores = row.purpose == EXPLORE
    decided = (record_exploration if explores else record_decision)(store, name, row, around.day)
    judged = decided.judged
    result = RunResult(
        experiment=name,
        profile=row.profile,
        purpose=row.purpose,
        machine_key=print_.machine_key,
        session=row.uid,
        row=judged.decision.row,
        verdict=f"exploratory: {judged.decision.verdict}" if explores else judged.decision.verdict,
        reasons=(*judged.decision.reasons, *judged.why),
        comparisons=decided.comparisons,
        fidelity=decided.fidelity,
        notes=(*session.notes(store, record), *judged.notes),
        samples=record.samples,
        expected_min=expected_min,
        seconds=time.monotonic() - around.begin,
        folder=Path(row.folder),
        database=store.url,
        otherwise=overrides_of(store, row),
    )
    write_json(result.folder / "result.json", result.as_dict() | {"kl": [r.document for r in decided.fidelity]})
    record.artifact(result.folder / "result.json")
    return result
