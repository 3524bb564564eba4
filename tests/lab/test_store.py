"""The database: migrations make the models' schema, raw tables are append-only, two processes may open it at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from engine import errors
from lab import store, tables
from lab.record import arm_sha256, stated_arm
from lab.store import BadDatabase, Store
from lab.tables import APPEND_ONLY, Base, BreadcrumbRow, ExperimentRow, SampleRow
from oracles.contract import StackConfig

ROOT = Path(__file__).resolve().parents[2]


def database(path: Path) -> Path:
    Store.open(str(path)).close()
    return path


def experiment(**changes: object) -> ExperimentRow:
    fields = dict.fromkeys(("hypothesis", "kind", "quality_class", "primary_metric", "owner"), "x")
    fields |= {"name": "kv8", "declared_on": "2026-11-29", "expires_on": "2026-12-29", "state": "declared"}
    return ExperimentRow(**(fields | changes))


def test_migrations_make_the_schema_of_the_models(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{database(tmp_path / 'lab.sqlite')}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        views = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'view'")).scalars().all()
        for view in views:
            connection.execute(text(f"SELECT * FROM {view}")).all()
        assert set(views) == {"latest_decision", "session_samples", "session_comparisons", "scorecard_samples"}
    engine.dispose()


def test_every_table_of_the_method_is_there() -> None:
    method = "machine env code config experiment arm workload session sample comparison fidelity eval_run eval_item"
    method += " decision breadcrumb artifact parity_cell golden"
    assert set(method.split()) <= set(Base.metadata.tables)
    assert set(Base.metadata.tables) - set(APPEND_ONLY) == {"experiment", "comparison"}


@pytest.mark.parametrize("name", APPEND_ONLY)
def test_raw_tables_refuse_update_and_delete(tmp_path: Path, name: str) -> None:
    table = Base.metadata.tables[name]
    engine = create_engine(f"sqlite:///{database(tmp_path / 'lab.sqlite')}")
    row = {c.name: "{}" if str(c.type) == "JSON" else 1 for c in table.columns}
    names = ", ".join(row)
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {name} ({names}) VALUES ({', '.join(':' + c for c in row)})"), row)
    for statement in (f"UPDATE {name} SET id = 2", f"DELETE FROM {name}"):
        with pytest.raises(IntegrityError, match="append-only"), engine.begin() as connection:
            connection.execute(text(statement))
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT id FROM {name}")).scalars().all() == [1]
    engine.dispose()


def test_rows_stay_and_once_inserts_once(tmp_path: Path) -> None:
    path = str(tmp_path / "lab.sqlite")
    with Store.open(path) as opened:
        first = opened.declare(experiment())
        opened.set_state(first, "measuring")
        assert opened.declare(experiment(expires_on="2027-01-12")) == first
        config = [opened.once(tables.ConfigRow(sha256="a", resolved_yaml="x"), sha256="a") for _ in range(2)]
        assert config[0] == config[1]
        opened.add(BreadcrumbRow(experiment_name="old", at=store.now(), text="numbers"))
    with Store.open(path) as again:
        row = again.experiment("kv8")
        assert row is not None
        assert (row.state, row.expires_on) == ("measuring", "2027-01-12")
        assert again.breadcrumbs() == {"old"}
        assert again.experiment("none") is None
        assert again.decisions("none") == []


def test_a_row_of_nothing_is_refused(tmp_path: Path) -> None:
    """Foreign keys are enforced: a sample belongs to a session that exists."""
    with Store.open(str(tmp_path / "lab.sqlite")) as opened:
        row = {c.name: 1 for c in SampleRow.__table__.columns if c.name != "id"}
        with pytest.raises(IntegrityError, match="FOREIGN KEY"):
            opened.add(SampleRow(**row))


def test_two_processes_open_a_new_database_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from lab.store import Store, now; from lab.tables import BreadcrumbRow\n"
        "with Store.open(sys.argv[1]) as s:\n"
        "    for i in range(20): s.add(BreadcrumbRow(experiment_name=sys.argv[2], at=now(), text=str(i)))\n"
    )
    path = tmp_path / "lab.sqlite"
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), name], cwd=ROOT) for name in ("a", "b")]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    with Store.open(str(path)) as opened:
        assert len(opened.rows(BreadcrumbRow)) == 40


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(store.DB_ENV, raising=False)
    assert store.database_url() == f"sqlite:///{tmp_path / 'lab.sqlite'}"
    assert not store.exists()
    monkeypatch.setenv(store.DB_ENV, "other.sqlite")
    assert store.database_url() == f"sqlite:///{tmp_path / 'other.sqlite'}"
    assert store.database_url("postgresql://host/lab") == "postgresql://host/lab"
    assert store.exists("postgresql://host/lab")
    with Store.open() as opened:
        assert opened.url == f"sqlite:///{tmp_path / 'other.sqlite'}"
    assert (tmp_path / "other.sqlite").is_file()
    assert store.exists()


def test_reading_opens_what_is_there_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(store.DB_ENV, raising=False)
    assert store.existing() is None
    assert store.place() == str(tmp_path / "lab.sqlite")
    monkeypatch.setenv(store.DB_ENV, "named.sqlite")
    for named in (None, "other.sqlite", str(tmp_path)):
        with pytest.raises(store.NoDatabase, match=f"no database at {store.place(named)}"):
            store.existing(named)
    assert list(tmp_path.iterdir()) == []
    database(tmp_path / "named.sqlite")
    found = store.existing()
    assert found is not None
    found.close()
    with pytest.raises(BadDatabase):
        store.existing("://")
    assert store.place("postgresql://me:secret@host/lab") == "postgresql://me:***@host/lab"


def test_what_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("not a database " * 100, encoding="utf-8")
    with pytest.raises(BadDatabase, match="not a database"):
        Store.open(str(broken))
    with pytest.raises(BadDatabase, match="unable to open"):
        Store.open(str(tmp_path / "none" / "lab.sqlite"))
    with pytest.raises(errors.NotBuilt, match="mysql"):
        Store.open("mysql://host/lab")
    with pytest.raises(BadDatabase):
        Store.open("://")


def test_derived_rows_carry_the_hash_of_the_analysis() -> None:
    assert len(store.analysis_sha256()) == 64
    assert "analysis_sha256" in Base.metadata.tables["comparison"].columns
    assert "analysis_sha256" in Base.metadata.tables["decision"].columns


def test_another_plan_per_layer_is_another_arm_under_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "kv_config.json"
    config = StackConfig(stack="engine", model="folder", kv=f"mixed:{path}:start=7")
    arms = []
    for bits in (8, 4):
        path.write_text(json.dumps([{"layer_idx": 0, "bits": bits}]))
        arms.append(store.digest(stated_arm(config, "a model")))
    assert arms[0] != arms[1]
    copy = tmp_path / "elsewhere" / "plan.json"
    copy.parent.mkdir()
    copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    moved = StackConfig(stack="engine", model="folder", kv=f"mixed:{copy}:start=7")
    later = StackConfig(stack="engine", model="folder", kv=f"mixed:{copy}:start=8")
    keys = [arm_sha256("base", each, "a model", "0") for each in (config, moved, later)]
    assert keys[0] == keys[1] != keys[2]  # the path is no part of the key, the rest of the notation is
    assert "kv_plan" not in stated_arm(StackConfig(stack="engine", model="folder", kv="kv8"), "a model")
