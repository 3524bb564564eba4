"""Checks of the zoo: one append-only row a model, with what was measured and which claims it does not bear out."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

NAME = "zoo_check"
TEXTS = ("run", "at", "command", "size", "model", "about")


def upgrade() -> None:
    op.create_table(
        NAME,
        sa.Column("id", sa.Integer(), primary_key=True),
        *(
            sa.Column(f"{of}_id", sa.Integer(), sa.ForeignKey(f"{of}.id"), nullable=False)
            for of in ("machine", "env", "code")
        ),
        *(sa.Column(text, sa.String(), nullable=False) for text in TEXTS),
        sa.Column("baseline", sa.Double(), nullable=False),
        sa.Column("measured", sa.JSON(), nullable=False),
        sa.Column("untrue", sa.JSON(), nullable=False),
    )
    for event in ("UPDATE", "DELETE"):
        how = (
            "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
            if op.get_bind().dialect.name == "postgresql"
            else f"BEGIN SELECT RAISE(ABORT, '{NAME} is append-only'); END"
        )
        op.execute(f"CREATE TRIGGER {NAME}_no_{event.lower()} BEFORE {event} ON {NAME} {how}")
