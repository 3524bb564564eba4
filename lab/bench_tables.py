"""The tables of benches that go on over several calls: what ran where, and each sample when it was taken. All are
append-only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from lab.table_base import Base


class BenchRunRow(Base):
    """One call of a bench. about: limits, ceilings and sizes as they were then."""

    __tablename__ = "bench_run"
    uid: Mapped[str] = mapped_column(unique=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machine.id"))
    env_id: Mapped[int] = mapped_column(ForeignKey("env.id"))
    code_id: Mapped[int] = mapped_column(ForeignKey("code.id"))
    task: Mapped[str]
    about: Mapped[dict[str, Any]]
    command: Mapped[str]
    boot: Mapped[str]
    started: Mapped[str]


class BenchEventRow(Base):
    """What happened to a run: refused (a cell), not started and crashed (a turn), failed, finished."""

    __tablename__ = "bench_event"
    run_id: Mapped[int] = mapped_column(ForeignKey("bench_run.id"), index=True)
    at: Mapped[str]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]]


class BenchSampleRow(Base):
    """One sample of a cell. setup_sha256: of all that it depends on besides the machine; samples of equal ones belong
    together. part: "ab", "aa", or "host" for where a step's time goes."""

    __tablename__ = "bench_sample"
    run_id: Mapped[int] = mapped_column(ForeignKey("bench_run.id"), index=True)
    cell: Mapped[str]
    setup_sha256: Mapped[str]
    part: Mapped[str]
    launch: Mapped[int]
    document: Mapped[dict[str, Any]]


BENCH_TABLES = ("bench_run", "bench_event", "bench_sample")
