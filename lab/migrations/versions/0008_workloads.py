"""The name of a workload, and what a sample of several rows or of drawn continuations is judged by."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

SESSION_SAMPLES = """
    SELECT e.name AS experiment, s.uid AS session_uid, s.profile, w.name AS workload, p.*
    FROM sample p JOIN session s ON s.id = p.session_id JOIN experiment e ON e.id = s.experiment_id
    JOIN workload w ON w.id = s.workload_id"""


def upgrade() -> None:
    op.add_column("workload", sa.Column("name", sa.String(), nullable=False, server_default="own"))
    for name in ("agg_tok_s", "self_bleu"):
        op.add_column("sample", sa.Column(name, sa.Double(), nullable=True))
    op.execute("DROP VIEW session_samples")
    op.execute(f"CREATE VIEW session_samples AS {SESSION_SAMPLES}")
