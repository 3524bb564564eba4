"""The tables of the lab's database. Migrations under lab/migrations make them; a test holds that both agree.

Raw tables (`APPEND_ONLY`) refuse UPDATE and DELETE by trigger. `comparison` is derived: it carries the hash of the code
that made it and may be dropped and made again. `experiment` alone has a state that changes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from lab.bench_tables import BENCH_TABLES
from lab.scorecard_tables import SCORECARD_TABLES
from lab.table_base import Base


class MachineRow(Base):
    __tablename__ = "machine"
    key: Mapped[str]
    sha256: Mapped[str] = mapped_column(unique=True)
    facts: Mapped[dict[str, Any]]


class EnvRow(Base):
    __tablename__ = "env"
    sha256: Mapped[str] = mapped_column(unique=True)
    python: Mapped[str]
    packages: Mapped[dict[str, Any]]
    lock_sha256: Mapped[str]
    variables: Mapped[dict[str, Any]]


class CodeRow(Base):
    __tablename__ = "code"
    sha256: Mapped[str] = mapped_column(unique=True)
    git_sha: Mapped[str]
    dirty: Mapped[bool]
    diff_sha256: Mapped[str]
    arms_sha256: Mapped[str] = mapped_column(server_default="")


class ConfigRow(Base):
    __tablename__ = "config"
    sha256: Mapped[str] = mapped_column(unique=True)
    resolved_yaml: Mapped[str]


class ExperimentRow(Base):
    """state: declared -> measuring -> promoted | opt-in | deleted."""

    __tablename__ = "experiment"
    name: Mapped[str] = mapped_column(unique=True)
    hypothesis: Mapped[str]
    kind: Mapped[str]
    quality_class: Mapped[str]
    primary_metric: Mapped[str]
    owner: Mapped[str]
    declared_on: Mapped[str]
    expires_on: Mapped[str]
    state: Mapped[str]


class ArmRow(Base):
    __tablename__ = "arm"
    __table_args__ = (UniqueConstraint("experiment_id", "sha256"),)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id"))
    role: Mapped[str]
    stack: Mapped[str]
    config: Mapped[dict[str, Any]]
    model_sha256: Mapped[str]
    sha256: Mapped[str]


class WorkloadRow(Base):
    __tablename__ = "workload"
    name: Mapped[str] = mapped_column(server_default="own")
    sha256: Mapped[str] = mapped_column(unique=True)
    prompt_tokens: Mapped[int]
    max_tokens: Mapped[int]
    batch: Mapped[int]
    concurrency: Mapped[int]
    sampler: Mapped[str]
    token_ids: Mapped[list[Any]]


class SessionRow(Base):
    """purpose: "search", "confirm", or "explore" for one that was not measured as declared and that nothing counts."""

    __tablename__ = "session"
    uid: Mapped[str] = mapped_column(unique=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id"))
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    env_id: Mapped[int] = mapped_column(ForeignKey("env.id"))
    code_id: Mapped[int] = mapped_column(ForeignKey("code.id"))
    config_id: Mapped[int] = mapped_column(ForeignKey("config.id"))
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"))
    purpose: Mapped[str]
    profile: Mapped[str]
    boot: Mapped[str]
    started: Mapped[str]
    as_of: Mapped[str]
    aa_seed: Mapped[str]
    ab_seed: Mapped[str]
    folder: Mapped[str]


class SessionEventRow(Base):
    """What happened to a session: arms, exploratory, preflight, fitted, aa-shared, confirms, clocks, invalid-quad,
    look, ab-done, postflight, measured, explored, resumed, clock-jump, failed, finished."""

    __tablename__ = "session_event"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"))
    at: Mapped[str]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]]


class SampleRow(Base):
    """One timed sample, written as soon as it is taken. part: "aa" or "ab"; role: its arm in that part."""

    __tablename__ = "sample"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), index=True)
    arm_id: Mapped[int] = mapped_column(ForeignKey("arm.id"))
    part: Mapped[str]
    role: Mapped[str]
    launch: Mapped[int]
    block: Mapped[int]
    position: Mapped[int]
    order_code: Mapped[str]
    warm_up: Mapped[bool]
    pid: Mapped[int]
    process_started: Mapped[float]
    t0: Mapped[float]
    t1: Mapped[float]
    prompt_tokens: Mapped[int]
    decode_tokens: Mapped[int]
    cache_tokens: Mapped[int]
    decode_tok_s: Mapped[float]
    prefill_tok_s: Mapped[float]
    ttft_ms: Mapped[float]
    peak_bytes: Mapped[int] = mapped_column(BigInteger)
    rss_bytes: Mapped[int] = mapped_column(BigInteger)
    kv_bytes: Mapped[int] = mapped_column(BigInteger)
    lever: Mapped[str]
    load1: Mapped[float | None]
    steal: Mapped[float | None]
    valid: Mapped[bool]
    why: Mapped[str]
    attempt: Mapped[int] = mapped_column(server_default="0")
    agg_tok_s: Mapped[float | None]
    self_bleu: Mapped[float | None]


class ComparisonRow(Base):
    """Derived. `document`: every number of the look or count."""

    __tablename__ = "comparison"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), index=True)
    part: Mapped[str]
    metric: Mapped[str]
    use: Mapped[str]
    method: Mapped[str]
    quads: Mapped[int]
    launches: Mapped[int]
    estimate: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    p_wilcoxon: Mapped[float | None]
    p_t: Mapped[float | None]
    document: Mapped[dict[str, Any]]
    analysis_sha256: Mapped[str]


class FidelityRow(Base):
    __tablename__ = "fidelity"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), index=True)
    reference_arm_id: Mapped[int] = mapped_column(ForeignKey("arm.id"))
    candidate_arm_id: Mapped[int] = mapped_column(ForeignKey("arm.id"))
    corpus_sha256: Mapped[str]
    protocol: Mapped[str]
    counted: Mapped[int]
    total: Mapped[int]
    kl_mean: Mapped[float]
    status: Mapped[str]
    document: Mapped[dict[str, Any]]
    analysis_sha256: Mapped[str]


class EvalRunRow(Base):
    """One task run by one backend. `sha256` names everything that a result depends on; label: what its runs are called
    together; model: as it was asked for."""

    __tablename__ = "eval_run"
    sha256: Mapped[str] = mapped_column(unique=True)
    task: Mapped[str]
    version: Mapped[int]
    items: Mapped[int]
    group_size: Mapped[int]
    chance: Mapped[float]
    margin: Mapped[float]
    template_sha256: Mapped[str]
    backend: Mapped[dict[str, Any]]
    label: Mapped[str]
    model: Mapped[str]
    code: Mapped[dict[str, Any]]
    packages: Mapped[dict[str, Any]]
    started: Mapped[str]


class EvalItemRow(Base):
    """See `evals.run.ItemResult`. The rows of a group are inserted in one transaction."""

    __tablename__ = "eval_item"
    __table_args__ = (UniqueConstraint("eval_run_id", "item"),)
    eval_run_id: Mapped[int] = mapped_column(ForeignKey("eval_run.id"), index=True)
    group_index: Mapped[int]
    item: Mapped[str]
    cluster: Mapped[str]
    prompt_sha256: Mapped[str]
    prompt_ids: Mapped[list[Any]]
    output: Mapped[str]
    output_sha256: Mapped[str]
    score: Mapped[float]
    extracted: Mapped[str]
    why: Mapped[str]
    not_run: Mapped[bool]
    prompt_tokens: Mapped[int]
    tokens: Mapped[int]
    finish_reason: Mapped[str]


class EvalAgainRow(Base):
    """What came of an item that its first row could not judge and a later run of the same key could; it holds instead
    of that row's values."""

    __tablename__ = "eval_again"
    eval_item_id: Mapped[int] = mapped_column(ForeignKey("eval_item.id"), unique=True)
    at: Mapped[str]
    prompt_ids: Mapped[list[Any]]
    output: Mapped[str]
    output_sha256: Mapped[str]
    score: Mapped[float]
    extracted: Mapped[str]
    why: Mapped[str]
    prompt_tokens: Mapped[int]
    tokens: Mapped[int]
    finish_reason: Mapped[str]


class DecisionRow(Base):
    __tablename__ = "decision"
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id"), index=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"))
    machine_key: Mapped[str]
    rule_row: Mapped[str]
    verdict: Mapped[str]
    reasons: Mapped[list[Any]]
    facts: Mapped[dict[str, Any]]
    evidence: Mapped[list[Any]]
    as_of: Mapped[str]
    at: Mapped[str]
    analysis_sha256: Mapped[str]


class BreadcrumbRow(Base):
    """What is left of a deleted experiment."""

    __tablename__ = "breadcrumb"
    experiment_name: Mapped[str]
    at: Mapped[str]
    text: Mapped[str]


class SweepJobRow(Base):
    """A job of a sweep. outcome: started, finished or failed; detail: its folder, and the verdict or the error."""

    __tablename__ = "sweep_job"
    sweep: Mapped[str]
    experiment_name: Mapped[str]
    number: Mapped[int]
    overrides: Mapped[list[Any]]
    at: Mapped[str]
    outcome: Mapped[str]
    detail: Mapped[dict[str, Any]]


class ArtifactRow(Base):
    __tablename__ = "artifact"
    session_id: Mapped[int | None] = mapped_column(ForeignKey("session.id"))
    path: Mapped[str]
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class ParityCellRow(Base):
    __tablename__ = "parity_cell"
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    code_id: Mapped[int] = mapped_column(ForeignKey("code.id"))
    at: Mapped[str]
    cell: Mapped[dict[str, Any]]
    status: Mapped[str]


class GoldenRow(Base):
    __tablename__ = "golden"
    machine_key: Mapped[str]
    path: Mapped[str]
    sha256: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    at: Mapped[str]


APPEND_ONLY = (
    "machine",
    "env",
    "code",
    "config",
    "arm",
    "workload",
    "session",
    "session_event",
    "sample",
    "fidelity",
    "eval_run",
    "eval_item",
    "eval_again",
    "decision",
    "breadcrumb",
    "sweep_job",
    "artifact",
    "parity_cell",
    "golden",
    *SCORECARD_TABLES,
    *BENCH_TABLES,
)
