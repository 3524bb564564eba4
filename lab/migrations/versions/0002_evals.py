"""Runs of tasks by themselves, without an arm of an experiment, and all of an item's result. The tables before held
nothing: no version wrote to them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TEXT, INT, REAL, FLAG, DOC = sa.String, sa.Integer, sa.Double, sa.Boolean, sa.JSON
KINDS = {
    "eval_run": {
        "sha256": TEXT,
        "task": TEXT,
        "version": INT,
        "items": INT,
        "group_size": INT,
        "chance": REAL,
        "margin": REAL,
        "template_sha256": TEXT,
        "backend": DOC,
        "label": TEXT,
        "model": TEXT,
        "code": DOC,
        "packages": DOC,
        "started": TEXT,
    },
    "eval_item": {
        "eval_run_id": INT,
        "group_index": INT,
        "item": TEXT,
        "cluster": TEXT,
        "prompt_sha256": TEXT,
        "prompt_ids": DOC,
        "output": TEXT,
        "output_sha256": TEXT,
        "score": REAL,
        "extracted": TEXT,
        "why": TEXT,
        "not_run": FLAG,
        "prompt_tokens": INT,
        "tokens": INT,
        "finish_reason": TEXT,
    },
}
UNIQUE = ("sha256",)
FOREIGN = {"eval_run_id": "eval_run.id"}


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    for name in ("eval_item", "eval_run"):
        op.drop_table(name)
    for name, columns in KINDS.items():
        parts = [_column(column, kind) for column, kind in columns.items()]
        unique = [sa.UniqueConstraint("eval_run_id", "item")] if name == "eval_item" else []
        op.create_table(name, sa.Column("id", sa.Integer(), primary_key=True), *parts, *unique)
        for event in ("UPDATE", "DELETE"):
            how = (
                "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
                if dialect == "postgresql"
                else f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
            )
            op.execute(f"CREATE TRIGGER {name}_no_{event.lower()} BEFORE {event} ON {name} {how}")


def _column(name: str, kind: type) -> sa.Column:
    foreign = [sa.ForeignKey(FOREIGN[name])] if name in FOREIGN else []
    return sa.Column(
        name, kind(), *foreign, unique=name in UNIQUE or None, index=name in FOREIGN or None, nullable=False
    )
