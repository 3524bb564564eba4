"""Attempts of a quad (a repeat, or what a dead run left), and the hash of the source that the arms of a session ran."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

SESSION_SAMPLES = """
    SELECT e.name AS experiment, s.uid AS session_uid, s.profile, p.*
    FROM sample p JOIN session s ON s.id = p.session_id JOIN experiment e ON e.id = s.experiment_id"""


def upgrade() -> None:
    op.add_column("sample", sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("code", sa.Column("arms_sha256", sa.String(), nullable=False, server_default=""))
    op.execute("DROP VIEW session_samples")  # PostgreSQL fixes the columns of a star when a view is made
    op.execute(f"CREATE VIEW session_samples AS {SESSION_SAMPLES}")
