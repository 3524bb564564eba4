"""Writes one run into the database as it happens: its identity first, each sample when taken, and how it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import parse_kv
from lab.config import LabConf
from lab.declared import EXPLORE
from lab.design import Role
from lab.fidelity import FidelityRun
from lab.fingerprint import Fingerprint
from lab.judge import Comparison, document
from lab.measure import Part, QuadResult, Sample
from lab.store import Store, analysis_sha256, digest, now
from lab.tables import (
    ArmRow,
    ArtifactRow,
    CodeRow,
    ComparisonRow,
    ConfigRow,
    EnvRow,
    ExperimentRow,
    FidelityRow,
    MachineRow,
    SampleRow,
    SessionRow,
    WorkloadRow,
)
from lab.workloads import LoadConf
from oracles.contract import StackConfig


def stated_arm(config: StackConfig, model: str) -> dict[str, Any]:
    """What an arm is by its row, the entries of a KV plan per layer included: its file may change under its name."""
    stated = config.as_dict() | {"model": model}
    path = parse_kv(config.kv).path
    return stated if path is None else stated | {"kv_plan": json.loads(Path(path).read_text(encoding="utf-8"))}


def declare(store: Store, conf: LabConf) -> int:
    """The experiment's row, before anything is measured."""
    e = conf.experiment
    return store.declare(
        ExperimentRow(
            name=e.name,
            hypothesis=e.hypothesis,
            kind=e.kind,
            quality_class=e.quality_class,
            primary_metric=e.primary,
            owner=e.owner,
            declared_on=e.declared_on,
            expires_on=e.expires_on,
            state="declared",
        )
    )


def read_samples(store: Store, session_id: int) -> list[Sample]:
    """The samples of a session as they were taken, in the order of their ids: what a replay starts from."""
    kept = [f.name for f in fields(Sample) if f.name != "order"]
    return [
        Sample(order=row.order_code, **{name: row.__dict__[name] for name in kept}) for row in store.samples(session_id)
    ]


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """What a session is, before anything is measured. yaml: the configuration as text; purpose: "search", "confirm"
    or "explore"; seeds: of each part's coins."""

    conf: LabConf
    yaml: str
    print: Fingerprint
    uid: str
    purpose: str
    folder: Path
    as_of: str
    arms: Mapping[Role, StackConfig]
    model_sha256: str
    token_ids: Sequence[int]
    seeds: Mapping[str, int]


class SessionRecord:
    """One session's rows. As a context it notes a failure at once, with its words, and lets the error pass."""

    def __init__(self, store: Store, experiment_id: int, session_id: int, arm_ids: Mapping[Role, int]) -> None:
        self.store, self.experiment_id, self.session_id, self.arm_ids = store, experiment_id, session_id, dict(arm_ids)
        self.samples = len(store.samples(session_id))

    @classmethod
    def begin(cls, store: Store, new: NewSession) -> SessionRecord:
        """Insert the rows of a new session."""
        conf, print_, sha = new.conf, new.print, hashlib.sha256(new.yaml.encode()).hexdigest()
        experiment_id = declare(store, conf)
        arm_ids = {role: _arm(store, experiment_id, role, config, new) for role, config in new.arms.items()}
        if new.purpose != EXPLORE and store.rows(ExperimentRow, id=experiment_id)[0].state == "declared":
            store.set_state(experiment_id, "measuring")
        row = SessionRow(
            uid=new.uid,
            experiment_id=experiment_id,
            machine_id=add_machine(store, print_),
            env_id=add_env(store, print_),
            code_id=add_code(store, print_),
            config_id=store.once(ConfigRow(sha256=sha, resolved_yaml=new.yaml), sha256=sha),
            workload_id=_workload(store, conf, new.token_ids),
            purpose=new.purpose,
            profile=conf.profile.name,
            boot=print_.boot,
            started=now(),
            as_of=new.as_of,
            aa_seed=str(new.seeds["aa"]),
            ab_seed=str(new.seeds["ab"]),
            folder=str(new.folder),
        )
        record = cls(store, experiment_id, store.add(row), arm_ids)
        record.event("arms", {str(role): arm_id for role, arm_id in arm_ids.items()})
        return record

    @classmethod
    def reopen(cls, store: Store, row: SessionRow, arm_ids: Mapping[Role, int]) -> SessionRecord:
        """Go on with a session that ended before its time."""
        return cls(store, row.experiment_id, row.id, arm_ids)

    def sample(self, sample: Sample) -> None:
        """Store one sample. In an A/A both roles are the base arm."""
        values = asdict(sample)
        arm: Role = sample.role if sample.part == "ab" else "base"
        self.store.add(
            SampleRow(
                session_id=self.session_id,
                arm_id=self.arm_ids[arm],
                order_code=values.pop("order"),
                **values,
            )
        )
        self.samples += 1

    def event(self, name: str, detail: Mapping[str, Any]) -> None:
        self.store.event(self.session_id, name, document(dict(detail)))

    def invalid(self, part: Part, quads: Sequence[QuadResult]) -> None:
        """Note each invalid quad with its reason."""
        for quad in quads:
            if not quad.valid:
                self.event("invalid-quad", {"part": part, "launch": quad.launch, "block": quad.block, "why": quad.why})

    def fidelity(self, runs: Sequence[FidelityRun]) -> None:
        """The KL runs of the session, all of them or none."""
        self.store.add_all(
            [
                FidelityRow(
                    session_id=self.session_id,
                    reference_arm_id=self.arm_ids["base"],
                    candidate_arm_id=self.arm_ids["candidate"],
                    corpus_sha256=run.corpus_sha256,
                    protocol=run.protocol,
                    counted=run.counted,
                    total=run.total,
                    kl_mean=run.kl_mean,
                    status=run.status,
                    document=run.document | {"run": {k: v for k, v in run.__dict__.items() if k != "document"}},
                    analysis_sha256=analysis_sha256(),
                )
                for run in runs
            ]
        )

    def artifact(self, path: Path) -> None:
        """A file of the run, by hash."""
        data = path.read_bytes()
        sha = hashlib.sha256(data).hexdigest()
        self.store.add(ArtifactRow(session_id=self.session_id, path=str(path), sha256=sha, size_bytes=len(data)))

    def __enter__(self) -> SessionRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.event("finished", {"samples": self.samples})
        else:
            self.event("failed", {"error": kind.__name__, "text": str(error), "samples": self.samples})


def add_machine(store: Store, print_: Fingerprint) -> int:
    """The id of the machine's row."""
    sha = digest(dict(print_.machine))
    return store.once(MachineRow(key=print_.machine_key, sha256=sha, facts=dict(print_.machine)), sha256=sha)


def add_env(store: Store, print_: Fingerprint) -> int:
    """The id of the environment's row."""
    packages = dict(print_.packages) | {"compiler": print_.compiler}
    variables = dict(print_.variables)
    sha = digest([print_.python, packages, print_.lock_sha256, variables])
    row = EnvRow(
        sha256=sha, python=print_.python, packages=packages, lock_sha256=print_.lock_sha256, variables=variables
    )
    return store.once(row, sha256=sha)


def add_code(store: Store, print_: Fingerprint) -> int:
    """The id of the row of the source."""
    code = asdict(print_.code)
    sha = digest(code)
    return store.once(CodeRow(sha256=sha, **code), sha256=sha)


def _workload(store: Store, conf: LabConf, token_ids: Sequence[int]) -> int:
    p, load = conf.profile, conf.workload
    sizes = [list(token_ids), p.max_tokens]
    shape = {name: value for name, value in asdict(load).items() if name != "about"}
    # What has the sizes of its experiment has the hash that it had before there were others.
    sha = digest(sizes if load == LoadConf() else [*sizes, shape])
    row = WorkloadRow(
        name=load.name,
        sha256=sha,
        prompt_tokens=p.prompt_tokens,
        max_tokens=p.max_tokens,
        batch=1 if load.kind in ("closed", "open") else load.rows,
        concurrency=load.concurrency or load.rows,
        sampler="as the arm says, ignore-eos" if load.kind == "drawn" else "greedy, ignore-eos",
        token_ids=list(token_ids),
    )
    return store.once(row, sha256=sha)


def _arm(store: Store, experiment_id: int, role: Role, config: StackConfig, new: NewSession) -> int:
    stated = stated_arm(config, new.conf.model)
    sha = arm_sha256(role, config, new.conf.model, new.model_sha256)
    row = ArmRow(
        experiment_id=experiment_id,
        role=role,
        stack=config.stack,
        config=stated,
        model_sha256=new.model_sha256,
        sha256=sha,
    )
    return store.once(row, experiment_id=experiment_id, sha256=sha)


def arm_sha256(role: Role, config: StackConfig, model: str, model_sha256: str) -> str:
    """What an arm is told apart by: its role, configuration and model bytes; of a plan per layer its content, wherever
    the file lies."""
    stated, path = stated_arm(config, model), parse_kv(config.kv).path
    if path is not None:
        stated["kv"] = config.kv.replace(str(path), digest(stated["kv_plan"]))
    return digest([role, stated, model_sha256])


def comparison_row(session_id: int, c: Comparison) -> ComparisonRow:
    """The derived row of a comparison; an A/A row says so in `part`."""
    look, counted = document(c.look) if c.look else {}, document(c.counted) if c.counted else {}
    return ComparisonRow(
        session_id=session_id,
        part="aa" if c.use == "aa" else "ab",
        metric=c.metric,
        use=c.use,
        method="timed" if c.look else "counted",
        quads=look.get("quads", 0),
        launches=look.get("launches", 0),
        estimate=look.get("estimate", counted.get("estimate")),
        low=look.get("low"),
        high=look.get("high"),
        p_wilcoxon=look.get("p_wilcoxon"),
        p_t=look.get("p_t"),
        document=document(c),
        analysis_sha256=analysis_sha256(),
    )
