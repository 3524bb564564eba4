"""Databases that are corrupt, locked, old, new, somebody else's, or on a full disk; and clocks that are set."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from lab_fakes import Bytes, Machine, gate_that_says, model_folder
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

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


@pytest.mark.parametrize("content", [b"# notes\n", b"\x7fELF" + bytes(5000)])
def test_a_file_that_is_no_database_is_refused_and_not_copied(tmp_path: Path, content: bytes) -> None:
    """Catches a copy of whatever file FRONTIER_DB names by mistake."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(BadDatabase, match="not an SQLite database, it begins with"):
            Store.open(str(path), read_only=read_only)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("notes.txt", content)]


def test_a_copy_that_stays_partial_is_not_called_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half a copy that the next opening takes for a whole one."""
    broken = break_pages(path)
    really = trouble.shutil.copy2

    def half(source: Path, target: Path) -> None:
        target.write_bytes(Path(source).read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trouble.shutil, "copy2", half)
    with pytest.raises(BadDatabase, match=r"no copy could be made \(No space left on device\)"):
        Store.open(str(path))
    assert not list(path.parent.glob("*corrupt*"))
    monkeypatch.setattr(trouble.shutil, "copy2", really)
    with pytest.raises(BadDatabase, match="is a copy"):
        Store.open(str(path))
    (copy,) = path.parent.glob("lab.sqlite.corrupt-*")
    assert copy.read_bytes() == broken


@contextmanager
def nobody_writes(folder: Path) -> Iterator[None]:
    """The folder and its files as another user finds them who may only read; root is one for a moment."""
    for each in (*folder.iterdir(), folder):
        each.chmod(0o555 if each.is_dir() else 0o444)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(me)
        folder.chmod(0o755)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """One that any user reaches: those of the tests are private."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_a_read_only_database_is_read_and_nothing_is_left_beside_it(shared_folder: Path) -> None:
    """Catches a view that needs to write: a journal mode, a lock, a schema that is there already."""
    path = shared_folder / "lab.sqlite"
    with Store.open(str(path)) as opened:
        opened.add(crumb("kept"))
    before = {file.name: file.read_bytes() for file in shared_folder.iterdir()}
    with nobody_writes(shared_folder):
        with pytest.raises(sqlite3.Error):
            sqlite3.connect(path).execute("CREATE TABLE t (id INTEGER)")
        found = store.existing(str(path))
        assert found is not None
        with found:
            assert [row.text for row in found.rows(BreadcrumbRow)] == ["kept"]
            with pytest.raises(SQLAlchemyError):
                found.add(crumb("more"))
    assert {file.name: file.read_bytes() for file in shared_folder.iterdir()} == before


def test_an_older_schema_that_is_read_only_is_said(shared_folder: Path) -> None:
    path = shared_folder / "lab.sqlite"
    at_revision(path, "0001")
    with nobody_writes(shared_folder), pytest.raises(BadDatabase, match="schema 0001, older than this version's"):
        store.existing(str(path))
    found = store.existing(str(path))  # here it can be migrated
    assert found is not None
    found.close()
    assert (shared_folder / "lab.sqlite.schema-0001").is_file()


def test_a_reader_says_that_it_migrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.sqlite"
    at_revision(path, "0001")
    for words in ("had an older schema and was migrated; a copy lies beside it", ""):
        found = store.existing(str(path))
        assert found is not None
        found.close()
        said = capsys.readouterr().err
        assert words in said
        assert bool(said) is bool(words)


def test_a_database_that_begins_in_an_empty_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted break: a lab's database that something had cut to 0 bytes became a fresh one without a word. Rows that
    its journal still holds are kept: SQLite removes the journal of an empty file."""
    cut, fresh = tmp_path / "cut.sqlite", tmp_path / "fresh.sqlite"
    Store.open(str(fresh)).close()
    assert capsys.readouterr().err == ""
    cut.touch()
    Store.open(str(cut)).close()
    assert "cut.sqlite was an empty file of 0 bytes; a new database begins in it" in capsys.readouterr().err
    held = tmp_path / "held.sqlite"
    held.touch()
    journal = tmp_path / "held.sqlite-wal"
    journal.write_bytes(b"rows")
    with pytest.raises(BadDatabase, match=r"held\.sqlite-wal beside it holds rows"):
        Store.open(str(held))
    assert (held.read_bytes(), journal.read_bytes()) == (b"", b"rows")


def test_an_empty_file_is_no_database_for_a_reader(tmp_path: Path) -> None:
    """Catches a command that only reads and makes a database of whatever empty file it is given."""
    path = tmp_path / "nothing.sqlite"
    path.touch()
    with pytest.raises(BadDatabase, match=r"nothing\.sqlite: an empty file, no database"):
        store.existing(str(path))
    assert path.stat().st_size == 0
    with store.Store.open(str(path)) as written:
        assert written.rows(BreadcrumbRow) == []


def test_reading_does_not_wait_for_a_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a view that takes the lock of a writer."""
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = store.existing(str(path))
        assert found is not None
        with found:
            assert found.rows(BreadcrumbRow)
