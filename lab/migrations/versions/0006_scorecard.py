"""Runs of the scorecard: their events, timed samples and quality, append-only; a view that names a sample's run."""

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

TEXT, INT, BIG, REAL, DOC = sa.String, sa.Integer, sa.BigInteger, sa.Double, sa.JSON
RUN: dict[str, type | str] = {
    "machine_id": "machine",
    "env_id": "env",
    "code_id": "code",
    "model": TEXT,
    "timing_model": TEXT,
    "model_sha256": TEXT,
    "profile": TEXT,
    "class_limits": DOC,
    "command": TEXT,
    "boot": TEXT,
    "started": TEXT,
}
EVENT = {"at": TEXT, "event": TEXT, "detail": DOC}
SAMPLE = {
    "recipe": TEXT,
    "stack": TEXT,
    "kv": TEXT,
    "launch": INT,
    "round": INT,
    "position": INT,
    "decode_tok_s": REAL,
    "prefill_tok_s": REAL,
    "ttft_ms": REAL,
    "tpot_ms": REAL,
    "peak_bytes": BIG,
    "rss_bytes": BIG,
    "kv_bytes": BIG,
    "kv_status": TEXT,
    "sample_s": REAL,
    "steal": REAL,
}
QUALITY = {
    "recipe": TEXT,
    "corpus_sha256": TEXT,
    "kl_units": DOC,
    "nll_units": DOC,
    "top1": REAL,
    "scored": INT,
    "same_bits_as": TEXT,
    "checked": INT,
}
MAY_LACK = ("peak_bytes", "rss_bytes", "kv_bytes", "steal", "same_bits_as")
VIEW = """
    SELECT r.uid AS run_uid, r.timing_model, r.profile, p.*
    FROM scorecard_sample p JOIN scorecard_run r ON r.id = p.run_id"""


def column(name: str, kind: type | str) -> sa.Column:
    if isinstance(kind, str):
        return sa.Column(name, sa.Integer(), sa.ForeignKey(f"{kind}.id"), nullable=False)
    return sa.Column(name, kind(), nullable=name in MAY_LACK)


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
    return sa.Column("run_id", sa.Integer(), sa.ForeignKey("scorecard_run.id"), nullable=False, index=True)


def upgrade() -> None:
    table("scorecard_run", sa.Column("uid", sa.String(), nullable=False, unique=True), columns=RUN)
    table("scorecard_event", of_run(), columns=EVENT)
    table("scorecard_sample", of_run(), columns=SAMPLE)
    table("scorecard_quality", of_run(), columns=QUALITY)
    op.execute(f"CREATE VIEW scorecard_samples AS {VIEW}")
