"""A row for an item that was judged later than it was asked: raw rows are never changed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NAME = "eval_again"
TEXT, INT, REAL, DOC = sa.String, sa.Integer, sa.Double, sa.JSON
COLUMNS = {
    "at": TEXT,
    "prompt_ids": DOC,
    "output": TEXT,
    "output_sha256": TEXT,
    "score": REAL,
    "extracted": TEXT,
    "why": TEXT,
    "prompt_tokens": INT,
    "tokens": INT,
    "finish_reason": TEXT,
}


def upgrade() -> None:
    item = sa.Column("eval_item_id", sa.Integer(), sa.ForeignKey("eval_item.id"), unique=True, nullable=False)
    rest = [sa.Column(name, kind(), nullable=False) for name, kind in COLUMNS.items()]
    op.create_table(NAME, sa.Column("id", sa.Integer(), primary_key=True), item, *rest)
    for event in ("UPDATE", "DELETE"):
        how = (
            "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
            if op.get_bind().dialect.name == "postgresql"
            else f"BEGIN SELECT RAISE(ABORT, '{NAME} is append-only'); END"
        )
        op.execute(f"CREATE TRIGGER {NAME}_no_{event.lower()} BEFORE {event} ON {NAME} {how}")
