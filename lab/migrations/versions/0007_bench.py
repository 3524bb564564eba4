"""Benches that go on over several calls: runs, events and samples, append-only."""

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

TEXT, INT, DOC = sa.String, sa.Integer, sa.JSON
RUN: dict[str, type | str] = {
    "machine_id": "machine",
    "env_id": "env",
    "code_id": "code",
    "task": TEXT,
    "about": DOC,
    "command": TEXT,
    "boot": TEXT,
    "started": TEXT,
}
EVENT: dict[str, type | str] = {"at": TEXT, "event": TEXT, "detail": DOC}
SAMPLE: dict[str, type | str] = {"cell": TEXT, "setup_sha256": TEXT, "part": TEXT, "launch": INT, "document": DOC}


def column(name: str, kind: type | str) -> sa.Column:
    if isinstance(kind, str):
        return sa.Column(name, sa.Integer(), sa.ForeignKey(f"{kind}.id"), nullable=False)
    return sa.Column(name, kind(), nullable=False)


def table(name: str, *first: sa.Column, columns: Mapping[str, type | str]) -> None:
    rest = [column(*pair) for pair in columns.items()]
    op.create_table(name, sa.Column("id", sa.Integer(), primary_key=True), *first, *rest)
    for event in ("UPDATE", "DELETE"):
        how = (
            "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
            if op.get_bind().dialect.name == "postgresql"
            else f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
        )
        op.execute(f"CREATE TRIGGER {name}_no_{event.lower()} BEFORE {event} ON {name} {how}")


def of_run() -> sa.Column:
    return sa.Column("run_id", sa.Integer(), sa.ForeignKey("bench_run.id"), nullable=False, index=True)


def upgrade() -> None:
    table("bench_run", sa.Column("uid", sa.String(), nullable=False, unique=True), columns=RUN)
    table("bench_event", of_run(), columns=EVENT)
    table("bench_sample", of_run(), columns=SAMPLE)
