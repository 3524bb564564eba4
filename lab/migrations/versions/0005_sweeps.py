"""The jobs of sweeps: one row when a job starts, one when it ends, append-only."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TEXT, INT, DOC = sa.String, sa.Integer, sa.JSON
COLUMNS = {
    "sweep": TEXT,
    "experiment_name": TEXT,
    "number": INT,
    "overrides": DOC,
    "at": TEXT,
    "outcome": TEXT,
    "detail": DOC,
}


def upgrade() -> None:
    columns = [sa.Column(name, kind(), nullable=False) for name, kind in COLUMNS.items()]
    op.create_table("sweep_job", sa.Column("id", sa.Integer(), primary_key=True), *columns)
    for event in ("UPDATE", "DELETE"):
        how = (
            "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
            if op.get_bind().dialect.name == "postgresql"
            else "BEGIN SELECT RAISE(ABORT, 'sweep_job is append-only'); END"
        )
        op.execute(f"CREATE TRIGGER sweep_job_no_{event.lower()} BEFORE {event} ON sweep_job {how}")
