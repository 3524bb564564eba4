"""Writes one run into the database as it happens: its identity first, each sample when taken, and how it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import parse_kv
from lab.config import LabConf
from lab.decide import Decision, Facts
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
    DecisionRow,
    EnvRow,
    ExperimentRow,
    FidelityRow,
    MachineRow,
    SampleRow,
    SessionRow,
    WorkloadRow,
)
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
    """The samples of a session as they were taken: what a replay starts from."""
    kept = [f.name for f in fields(Sample) if f.name != "order"]
    return [
        Sample(order=row.order_code, **{name: row.__dict__[name] for name in kept}) for row in store.samples(session_id)
    ]


class SessionRecord:
    """One session's rows. As a context it notes a failure at once, with its words, and lets the error pass."""

    def __init__(
        self,
        store: Store,
        conf: LabConf,
        print_: Fingerprint,
        *,
        uid: str,
        folder: Path,
        as_of: str,
        arms: Mapping[Role, StackConfig],
        model_sha256: str,
        token_ids: Sequence[int],
        seeds: Mapping[str, int],
    ) -> None:
        self.store, self.conf = store, conf
        self.experiment_id = declare(store, conf)
        self.arm_ids: dict[Role, int] = {
            role: self._arm(role, config, model_sha256, conf) for role, config in arms.items()
        }
        store.set_state(self.experiment_id, "measuring")
        p = conf.profile
        self.session_id = store.add(
            SessionRow(
                uid=uid,
                experiment_id=self.experiment_id,
                machine_id=self._machine(print_),
                env_id=self._env(print_),
                code_id=self._code(print_),
                config_id=store.once(ConfigRow(sha256=conf.sha256, resolved_yaml=conf.as_yaml()), sha256=conf.sha256),
                workload_id=self._workload(p.prompt_tokens, p.max_tokens, token_ids),
                purpose="search",
                profile=p.name,
                boot=print_.boot,
                started=now(),
                as_of=as_of,
                aa_seed=str(seeds["aa"]),
                ab_seed=str(seeds["ab"]),
                folder=str(folder),
            )
        )
        self.samples = 0

    def _machine(self, print_: Fingerprint) -> int:
        sha = digest(dict(print_.machine))
        return self.store.once(MachineRow(key=print_.machine_key, sha256=sha, facts=dict(print_.machine)), sha256=sha)

    def _env(self, print_: Fingerprint) -> int:
        packages = dict(print_.packages) | {"compiler": print_.compiler}
        variables = dict(print_.variables)
        sha = digest([print_.python, packages, print_.lock_sha256, variables])
        row = EnvRow(
            sha256=sha,
            python=print_.python,
            packages=packages,
            lock_sha256=print_.lock_sha256,
            variables=variables,
        )
        return self.store.once(row, sha256=sha)

    def _code(self, print_: Fingerprint) -> int:
        code = print_.code
        sha = digest(asdict(code))
        row = CodeRow(sha256=sha, git_sha=code.git_sha, dirty=code.dirty, diff_sha256=code.diff_sha256)
        return self.store.once(row, sha256=sha)

    def _workload(self, prompt_tokens: int, max_tokens: int, token_ids: Sequence[int]) -> int:
        sha = digest([list(token_ids), max_tokens])
        row = WorkloadRow(
            sha256=sha,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            batch=1,
            concurrency=1,
            sampler="greedy, ignore-eos",
            token_ids=list(token_ids),
        )
        return self.store.once(row, sha256=sha)

    def _arm(self, role: Role, config: StackConfig, model_sha256: str, conf: LabConf) -> int:
        stated = stated_arm(config, conf.model)
        sha = digest([role, stated, model_sha256])
        row = ArmRow(
            experiment_id=self.experiment_id,
            role=role,
            stack=config.stack,
            config=stated,
            model_sha256=model_sha256,
            sha256=sha,
        )
        return self.store.once(row, experiment_id=self.experiment_id, sha256=sha)

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

    def comparisons(self, found: Sequence[Comparison]) -> list[int]:
        """The derived rows of this session; an A/A row says so in `part`."""
        return self.store.replace_comparisons(self.session_id, [_row(self.session_id, c) for c in found])

    def fidelity(self, run: FidelityRun) -> int:
        return self.store.add(
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
                document=run.document,
                analysis_sha256=analysis_sha256(),
            )
        )

    def decision(self, decision: Decision, facts: Facts, machine_key: str, as_of: str, evidence: Sequence[Any]) -> int:
        return self.store.add(
            DecisionRow(
                experiment_id=self.experiment_id,
                session_id=self.session_id,
                machine_key=machine_key,
                rule_row=decision.row,
                verdict=decision.verdict,
                reasons=list(decision.reasons),
                facts=asdict(facts),
                evidence=list(evidence),
                as_of=as_of,
                at=now(),
                analysis_sha256=analysis_sha256(),
            )
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


def _row(session_id: int, c: Comparison) -> ComparisonRow:
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
