"""Databases that are corrupt, locked, old, new, somebody else's, or on a full disk; and clocks that are set."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from lab_fakes import Bytes, Machine, gate_that_says, model_folder
from sqlalchemy import create_engine

from engine import machine
from lab import run, store, trouble
from lab.clock import SteadyClock
from lab.run import run_experiment
from lab.store import MIGRATIONS, Store
from lab.tables import Base, BreadcrumbRow
from lab.trouble import BadDatabase, DatabaseFull, DatabaseLocked, Reserve


def crumb(text: str) -> BreadcrumbRow:
    return BreadcrumbRow(experiment_name="x", at=store.now(), text=text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with some rows."""
    where = tmp_path / "lab.sqlite"
    with Store.open(str(where)) as opened:
        opened.add_all([crumb("x" * 500) for _ in range(60)])
    return where


def break_pages(path: Path) -> bytes:
    """Overwrite the last pages of a database file, as a bad disk does."""
    data = bytearray(path.read_bytes())
    data[-3 * 4096 :] = b"\xff" * (3 * 4096)
    path.write_bytes(data)
    return bytes(data)


def test_a_corrupt_database_is_left_alone_and_a_copy_is_kept(path: Path) -> None:
    broken = break_pages(path)
    for _ in range(2):
        with pytest.raises(BadDatabase, match=r"is a copy: move lab\.sqlite away"):
            Store.open(str(path))
    copies = list(path.parent.glob("lab.sqlite.corrupt-*"))
    assert [copy.read_bytes() for copy in copies] == [broken]
    assert path.read_bytes() == broken


def test_a_database_that_breaks_while_it_is_open_is_named(path: Path) -> None:
    with Store.open(str(path)) as opened:
        break_pages(path)
        opened._engine.dispose()  # its connection has the pages in memory
        with pytest.raises(BadDatabase, match="malformed"):
            opened.rows(BreadcrumbRow)


def test_a_locked_database_says_for_how_long_and_by_whom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(trouble, "holders", lambda held: f" (open in process 7 ({held.name}))")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseLocked, match=r"locked for 0\.1 s \(open in process 7 \(lab\.sqlite\)\)"):
            Store.open(str(path))
        other.execute("ROLLBACK")
    Store.open(str(path)).close()


def test_holders_are_other_processes(path: Path) -> None:
    with open(path, "rb"):
        assert trouble.holders(path) == ""


def at_revision(path: Path, revision: str) -> None:
    engine = create_engine(f"sqlite:///{path}")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


def test_an_older_schema_migrates_and_a_copy_of_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "lab.sqlite"
    at_revision(path, "0001")
    Store.open(str(path)).close()
    with closing(sqlite3.connect(path)) as new, closing(sqlite3.connect(f"{path}.schema-0001")) as old:
        versions = [each.execute("SELECT version_num FROM alembic_version").fetchall() for each in (new, old)]
    assert versions[1] == [("0001",)]
    assert versions[0] != versions[1]
    Store.open(str(path)).close()
    assert len(list(tmp_path.glob("*.schema-*"))) == 1


def test_a_newer_schema_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    with pytest.raises(BadDatabase, match="schema 9999 and this version knows them up to 0"):
        Store.open(str(path))
    assert path.read_bytes() == before


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE photo (id INTEGER)")
    with pytest.raises(BadDatabase, match=r"holds other tables \(photo\)"):
        Store.open(str(path))


def limit_pages(opened: Store, pages: int | None) -> None:
    """Let the file not grow beyond what it has and `pages` more; None: without a limit."""
    with opened._engine.connect() as connection:
        has = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {2**30 if pages is None else has + pages}")


def test_on_a_full_disk_the_row_in_hand_is_still_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(str(path)) as opened:
        opened.reserve()
        assert path.with_name("lab.sqlite.reserve").stat().st_size == trouble.RESERVE_BYTES
        had = len(opened.rows(BreadcrumbRow))
        limit_pages(opened, 0)
        really = Reserve.give_up

        def give_up(reserve: Reserve) -> bool:
            limit_pages(opened, None)
            return really(reserve)

        monkeypatch.setattr(Reserve, "give_up", give_up)
        with pytest.raises(DatabaseFull, match="what was measured is stored"):
            opened.add(crumb("y" * 40000))
        assert not path.with_name("lab.sqlite.reserve").exists()
    with Store.open(str(path)) as again:
        rows = again.rows(BreadcrumbRow)
        assert (len(rows), rows[-1].text[0]) == (had + 1, "y")


def test_a_full_disk_without_a_reserve_leaves_what_was_there(path: Path) -> None:
    with Store.open(str(path)) as opened:
        had = len(opened.rows(BreadcrumbRow))
        limit_pages(opened, 0)
        with pytest.raises(DatabaseFull, match="full"):
            opened.add(crumb("y" * 40000))
        limit_pages(opened, None)
        assert len(opened.rows(BreadcrumbRow)) == had


def test_the_reserve_goes_with_its_store(path: Path) -> None:
    with Store.open(str(path)) as opened:
        opened.reserve()
        Store.open(str(path)).close()
        assert path.with_name("lab.sqlite.reserve").exists()
    assert not path.with_name("lab.sqlite.reserve").exists()


def test_a_clock_that_is_set_moves_no_sample() -> None:
    wall, steady = [1000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    assert (clock(), clock.jump_s) == (1000.0, 0.0)
    wall[0], steady[0] = 5000.0, 15.0
    assert (clock(), clock.jump_s) == (1010.0, 3990.0)
    wall[0] = 10.0
    assert (clock(), clock.jump_s) == (1010.0, -1000.0)


def test_a_run_on_a_full_disk_keeps_every_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path / "model")
    monkeypatch.setattr(run, "resolve_model", lambda _name, progress: folder)
    monkeypatch.setattr(run, "load_tokenizer", lambda _folder: Bytes())
    world, path = Machine(machine().key), tmp_path / "lab.sqlite"
    really_add, really_give_up, stores = Store.add, Reserve.give_up, []

    def add(opened: Store, row: Base) -> int:
        if world.samples == 5 and not stores:
            stores.append(opened)
            limit_pages(opened, 0)
        return really_add(opened, row)

    def give_up(reserve: Reserve) -> bool:
        if stores:
            limit_pages(stores[0], None)
        return really_give_up(reserve)

    monkeypatch.setattr(Store, "add", add)
    monkeypatch.setattr(Reserve, "give_up", give_up)
    with pytest.raises(DatabaseFull, match="what was measured is stored"):
        run_experiment(
            "kv8",
            overrides=("profile.aa_quads=4", "profile.prompt_tokens=8"),
            url=str(path),
            out=tmp_path / "outputs",
            start=world.start,
            gate=gate_that_says("PASS"),
            as_of=date(2026, 12, 1),
            clock=world.clock,
            lock=tmp_path / "timing.lock",
        )
    with Store.open(str(path)) as again:
        session = again.sessions("kv8")[0]
        assert len(again.samples(session.id)) == world.samples > 5
        assert again.outcome(session.id) == "failed"
