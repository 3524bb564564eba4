"""The first schema: all tables, the triggers that keep raw ones append-only, the views.

A migration is frozen text: it names nothing of lab.tables, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

APPEND_ONLY = (
    "machine",
    "env",
    "code",
    "config",
    "arm",
    "workload",
    "session",
    "session_event",
    "sample",
    "fidelity",
    "eval_run",
    "eval_item",
    "decision",
    "breadcrumb",
    "artifact",
    "parity_cell",
    "golden",
)

VIEWS = {
    "latest_decision": """
        SELECT e.name, d.machine_key, d.rule_row, d.verdict, d.as_of, d.at, d.session_id, e.state, e.expires_on
        FROM decision d JOIN experiment e ON e.id = d.experiment_id
        WHERE d.id = (SELECT max(x.id) FROM decision x
                      WHERE x.experiment_id = d.experiment_id AND x.machine_key = d.machine_key)""",
    "session_samples": """
        SELECT e.name AS experiment, s.uid AS session_uid, s.profile, p.*
        FROM sample p JOIN session s ON s.id = p.session_id JOIN experiment e ON e.id = s.experiment_id""",
    "session_comparisons": """
        SELECT e.name AS experiment, s.uid AS session_uid, s.profile, c.*
        FROM comparison c JOIN session s ON s.id = c.session_id JOIN experiment e ON e.id = s.experiment_id""",
}

TEXT, INT, BIG, REAL, FLAG, DOC = sa.String, sa.Integer, sa.BigInteger, sa.Double, sa.Boolean, sa.JSON


def column(
    name: str, kind: type, *, to: str = "", unique: bool = False, index: bool = False, null: bool = False
) -> sa.Column:
    references = [sa.ForeignKey(f"{to}.id")] if to else []
    return sa.Column(name, kind(), *references, unique=unique or None, index=index or None, nullable=null)


def table(name: str, *parts: sa.schema.SchemaItem) -> None:
    op.create_table(name, sa.Column("id", sa.Integer(), primary_key=True), *parts)


def upgrade() -> None:
    create_tables()
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute(
            "CREATE FUNCTION frontier_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for raw in APPEND_ONLY:
        for event in ("UPDATE", "DELETE"):
            name = f"{raw}_no_{event.lower()}"
            if dialect == "postgresql":
                op.execute(
                    f"CREATE TRIGGER {name} BEFORE {event} ON {raw} "
                    "FOR EACH ROW EXECUTE FUNCTION frontier_append_only()"
                )
            else:
                op.execute(
                    f"CREATE TRIGGER {name} BEFORE {event} ON {raw} "
                    f"BEGIN SELECT RAISE(ABORT, '{raw} is append-only'); END"
                )


def create_tables() -> None:
    table("breadcrumb", column("experiment_name", TEXT), column("at", TEXT), column("text", TEXT))
    table(
        "code",
        column("sha256", TEXT, unique=True),
        column("git_sha", TEXT),
        column("dirty", FLAG),
        column("diff_sha256", TEXT),
    )
    table("config", column("sha256", TEXT, unique=True), column("resolved_yaml", TEXT))
    table(
        "env",
        column("sha256", TEXT, unique=True),
        column("python", TEXT),
        column("packages", DOC),
        column("lock_sha256", TEXT),
        column("variables", DOC),
    )
    table(
        "experiment",
        column("name", TEXT, unique=True),
        column("hypothesis", TEXT),
        column("kind", TEXT),
        column("quality_class", TEXT),
        column("primary_metric", TEXT),
        column("owner", TEXT),
        column("declared_on", TEXT),
        column("expires_on", TEXT),
        column("state", TEXT),
    )
    table(
        "golden",
        column("machine_key", TEXT),
        column("path", TEXT),
        column("sha256", TEXT),
        column("manifest", DOC),
        column("at", TEXT),
    )
    table("machine", column("key", TEXT), column("sha256", TEXT, unique=True), column("facts", DOC))
    table(
        "workload",
        column("sha256", TEXT, unique=True),
        column("prompt_tokens", INT),
        column("max_tokens", INT),
        column("batch", INT),
        column("concurrency", INT),
        column("sampler", TEXT),
        column("token_ids", DOC),
    )
    table(
        "arm",
        column("experiment_id", INT, to="experiment"),
        column("role", TEXT),
        column("stack", TEXT),
        column("config", DOC),
        column("model_sha256", TEXT),
        column("sha256", TEXT),
        sa.UniqueConstraint("experiment_id", "sha256"),
    )
    table(
        "parity_cell",
        column("machine_id", INT, to="machine"),
        column("code_id", INT, to="code"),
        column("at", TEXT),
        column("cell", DOC),
        column("status", TEXT),
    )
    table(
        "session",
        column("uid", TEXT, unique=True),
        column("experiment_id", INT, to="experiment"),
        column("machine_id", INT, to="machine"),
        column("env_id", INT, to="env"),
        column("code_id", INT, to="code"),
        column("config_id", INT, to="config"),
        column("workload_id", INT, to="workload"),
        column("purpose", TEXT),
        column("profile", TEXT),
        column("boot", TEXT),
        column("started", TEXT),
        column("as_of", TEXT),
        column("aa_seed", TEXT),
        column("ab_seed", TEXT),
        column("folder", TEXT),
    )
    table(
        "artifact",
        column("session_id", INT, to="session", null=True),
        column("path", TEXT),
        column("sha256", TEXT),
        column("size_bytes", BIG),
    )
    table(
        "comparison",
        column("session_id", INT, to="session", index=True),
        column("part", TEXT),
        column("metric", TEXT),
        column("use", TEXT),
        column("method", TEXT),
        column("quads", INT),
        column("launches", INT),
        column("estimate", REAL, null=True),
        column("low", REAL, null=True),
        column("high", REAL, null=True),
        column("p_wilcoxon", REAL, null=True),
        column("p_t", REAL, null=True),
        column("document", DOC),
        column("analysis_sha256", TEXT),
    )
    table(
        "decision",
        column("experiment_id", INT, to="experiment", index=True),
        column("session_id", INT, to="session"),
        column("machine_key", TEXT),
        column("rule_row", TEXT),
        column("verdict", TEXT),
        column("reasons", DOC),
        column("facts", DOC),
        column("evidence", DOC),
        column("as_of", TEXT),
        column("at", TEXT),
        column("analysis_sha256", TEXT),
    )
    table(
        "eval_run",
        column("arm_id", INT, to="arm"),
        column("suite", TEXT),
        column("version", TEXT),
        column("sha256", TEXT),
        column("started", TEXT),
    )
    table(
        "fidelity",
        column("session_id", INT, to="session", index=True),
        column("reference_arm_id", INT, to="arm"),
        column("candidate_arm_id", INT, to="arm"),
        column("corpus_sha256", TEXT),
        column("protocol", TEXT),
        column("counted", INT),
        column("total", INT),
        column("kl_mean", REAL),
        column("status", TEXT),
        column("document", DOC),
        column("analysis_sha256", TEXT),
    )
    table(
        "sample",
        column("session_id", INT, to="session", index=True),
        column("arm_id", INT, to="arm"),
        column("part", TEXT),
        column("role", TEXT),
        column("launch", INT),
        column("block", INT),
        column("position", INT),
        column("order_code", TEXT),
        column("warm_up", FLAG),
        column("pid", INT),
        column("process_started", REAL),
        column("t0", REAL),
        column("t1", REAL),
        column("prompt_tokens", INT),
        column("decode_tokens", INT),
        column("cache_tokens", INT),
        column("decode_tok_s", REAL),
        column("prefill_tok_s", REAL),
        column("ttft_ms", REAL),
        column("peak_bytes", BIG),
        column("rss_bytes", BIG),
        column("kv_bytes", BIG),
        column("lever", TEXT),
        column("load1", REAL, null=True),
        column("steal", REAL, null=True),
        column("valid", FLAG),
        column("why", TEXT),
    )
    table(
        "session_event",
        column("session_id", INT, to="session"),
        column("at", TEXT),
        column("event", TEXT),
        column("detail", DOC),
    )
    table(
        "eval_item",
        column("eval_run_id", INT, to="eval_run", index=True),
        column("item", TEXT),
        column("cluster", TEXT),
        column("prompt_sha256", TEXT),
        column("output_sha256", TEXT),
        column("score", REAL),
    )
