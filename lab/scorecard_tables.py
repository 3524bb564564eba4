"""The tables of the scorecard's runs. All are append-only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from lab.table_base import Base


class ScorecardRunRow(Base):
    """One measuring of the scorecard's recipes. class_limits: of the machine class, as they were then."""

    __tablename__ = "scorecard_run"
    uid: Mapped[str] = mapped_column(unique=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    env_id: Mapped[int] = mapped_column(ForeignKey("env.id"))
    code_id: Mapped[int] = mapped_column(ForeignKey("code.id"))
    model: Mapped[str]
    timing_model: Mapped[str]
    model_sha256: Mapped[str]
    profile: Mapped[str]
    class_limits: Mapped[dict[str, Any]]
    command: Mapped[str]
    boot: Mapped[str]
    started: Mapped[str]


class ScorecardEventRow(Base):
    """What happened to a run: artifacts, ceilings, fitted, refused, flight, finished, failed."""

    __tablename__ = "scorecard_event"
    run_id: Mapped[int] = mapped_column(ForeignKey("scorecard_run.id"), index=True)
    at: Mapped[str]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]]


class ScorecardSampleRow(Base):
    """One timed sample of a recipe, written when it was taken. The bytes of a foreign server are not known."""

    __tablename__ = "scorecard_sample"
    run_id: Mapped[int] = mapped_column(ForeignKey("scorecard_run.id"), index=True)
    recipe: Mapped[str]
    stack: Mapped[str]
    kv: Mapped[str]
    launch: Mapped[int]
    round: Mapped[int]
    position: Mapped[int]
    decode_tok_s: Mapped[float]
    prefill_tok_s: Mapped[float]
    ttft_ms: Mapped[float]
    tpot_ms: Mapped[float]
    peak_bytes: Mapped[int | None] = mapped_column(BigInteger)
    rss_bytes: Mapped[int | None] = mapped_column(BigInteger)
    kv_bytes: Mapped[int | None] = mapped_column(BigInteger)
    kv_status: Mapped[str]
    sample_s: Mapped[float]
    steal: Mapped[float | None]


class ScorecardQualityRow(Base):
    """KL and negative log-likelihood of a recipe, in nats, by sequence."""

    __tablename__ = "scorecard_quality"
    run_id: Mapped[int] = mapped_column(ForeignKey("scorecard_run.id"), index=True)
    recipe: Mapped[str]
    corpus_sha256: Mapped[str]
    kl_units: Mapped[list[Any]]
    nll_units: Mapped[list[Any]]
    top1: Mapped[float]
    scored: Mapped[int]
    same_bits_as: Mapped[str | None]
    checked: Mapped[int]


class ZooCheckRow(Base):
    """One model of the zoo, measured by `frontier zoo check`. run: of all rows of one command; baseline: the byte
    n-gram's bits per byte; measured: as a row of the zoo's table; untrue: each claim that it does not bear out."""

    __tablename__ = "zoo_check"
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    env_id: Mapped[int] = mapped_column(ForeignKey("env.id"))
    code_id: Mapped[int] = mapped_column(ForeignKey("code.id"))
    run: Mapped[str]
    at: Mapped[str]
    command: Mapped[str]
    size: Mapped[str]
    model: Mapped[str]
    about: Mapped[str]
    baseline: Mapped[float]
    measured: Mapped[dict[str, Any]]
    untrue: Mapped[list[Any]]


SCORECARD_TABLES = ("scorecard_run", "scorecard_event", "scorecard_sample", "scorecard_quality", "zoo_check")
