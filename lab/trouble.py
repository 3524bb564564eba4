"""What can be wrong with a database, as typed errors that say what to do; what a corrupt or an old one leaves behind.

SQLite tells its troubles apart by words alone, and these are its own.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DatabaseError

from engine import errors

CORRUPT = ("malformed", "not a database", "disk image", "quick_check")
LOCKED = ("locked", "busy")
FULL = ("disk is full", "no space left")
RESERVE_BYTES = 1 << 20
MAGIC = b"SQLite format 3\0"


class BadDatabase(errors.FrontierError):
    """The database cannot be opened, or is not one of the lab's; the message holds its own words."""


class DatabaseLocked(BadDatabase):
    """Another process writes to it for longer than this one waits."""


class DatabaseFull(BadDatabase):
    """The disk that it lies on is full. What was written before is whole."""


@contextmanager
def explained(shown: str, path: Path | None, wait_s: float) -> Iterator[None]:
    """Turn a database's errors about itself into typed ones; a broken rule of the schema passes as it is.

    shown: its address for people; path: its file, where it is one; wait_s: how long a lock was waited for.
    """
    try:
        yield
    except DatabaseError as error:
        words = " ".join(str(error.orig).split())
        if any(word in words for word in CORRUPT):
            raise corrupt(shown, path, words) from error
        if any(word in words for word in LOCKED):
            who = holders(path) if path else ""
            raise DatabaseLocked(f"{shown}: {words} for {wait_s:g} s{who}; wait for it, or end it") from error
        if any(word in words.lower() for word in FULL):
            raise DatabaseFull(f"{shown}: {words}; make room, then run again: what was measured is stored") from error
        raise


def require_sqlite(shown: str, path: Path, *, read_only: bool) -> None:
    """Raise `BadDatabase` for a file that is something else, which is none of ours to copy or to change; for an empty
    one where it is to be read, or where its journal still holds rows, which SQLite would remove. A new database is an
    empty file at first, so that one who writes may find it so; a line on stderr tells of it."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
    if not head and read_only:
        raise BadDatabase(f"{shown}: an empty file, no database; it was left as it is: remove it, or name another")
    journal = path.with_name(f"{path.name}-wal")
    if not head and journal.is_file() and journal.stat().st_size:
        raise BadDatabase(
            f"{shown}: an empty file, but {journal.name} beside it holds rows; both were left as they are: keep the "
            f"journal, then move both away to begin a new database"
        )
    if not head:
        print(f"note: {shown} was an empty file of 0 bytes; a new database begins in it", file=sys.stderr)
    if head and head != MAGIC:
        raise BadDatabase(f"{shown}: not an SQLite database, it begins with {head!r}; it was left as it is")


def corrupt(shown: str, path: Path | None, words: str) -> BadDatabase:
    """The error of a corrupt database, a copy of which is kept as it is now: once, and whole or not at all."""
    if path is None or not path.is_file():
        return BadDatabase(f"{shown}: {words}")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    copy = path.with_name(f"{path.name}.corrupt-{digest}")
    try:
        for tail in ("-wal", ""):  # the file itself last, so that it stands for both
            keep_whole(path.with_name(path.name + tail), copy.with_name(copy.name + tail))
    except OSError as error:
        return BadDatabase(
            f"{shown}: {words}; it was left as it is, and no copy could be made ({error.strerror}): copy {path} "
            f"elsewhere, and move it away to begin a new one; sqlite3 .recover may save its rows"
        )
    return BadDatabase(
        f"{shown}: {words}; it was left as it is, and {copy} is a copy: move {path.name} away to begin a new one; "
        f"sqlite3 {copy} .recover may save its rows"
    )


def keep_whole(source: Path, copy: Path) -> None:
    """Copy a file that holds something, unless that was done. What was copied in part is removed. Raises OSError."""
    if copy.exists() or not source.is_file() or not source.stat().st_size:
        return
    partial = copy.with_name(f".{copy.name}.partial")
    try:
        shutil.copy2(source, partial)
        partial.replace(copy)
    finally:
        partial.unlink(missing_ok=True)


def holders(path: Path) -> str:
    """Which other processes have the file open, in words; "" where none can be seen."""
    mine = psutil.Process().pid
    found = [
        f"{process.pid} ({process.info['name']})"
        for process in psutil.process_iter(["name", "open_files"], ad_value=None)
        if process.pid != mine and any(Path(file.path) == path for file in process.info["open_files"] or ())
    ]
    return f" (it is open in process {', '.join(found)})" if found else ""


def check_file(connection: Connection, shown: str, path: Path | None) -> None:
    """Read every page of an SQLite file once. Raises `BadDatabase`."""
    answer = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    if answer != "ok":
        raise corrupt(shown, path, f"quick_check: {' '.join(answer.split())}")


def check_revision(connection: Connection, current: str | None, known: list[str], shown: str) -> None:
    """Refuse a database of a newer version, and one that is somebody else's. Raises `BadDatabase`."""
    if current is None:
        tables = inspect(connection).get_table_names()
        if tables:
            raise BadDatabase(f"{shown}: it holds other tables ({', '.join(sorted(tables)[:3])}) and is not the lab's")
    elif current not in known:
        raise BadDatabase(
            f"{shown}: it has schema {current} and this version knows them up to {max(known)}; use the version that "
            f"wrote it, or another database"
        )


def keep_copy(path: Path, revision: str) -> Path:
    """A copy of a database before its schema is changed. It is made once for each schema."""
    copy = path.with_name(f"{path.name}.schema-{revision}")
    if not copy.exists():
        partial = copy.with_name(f".{copy.name}.partial")
        partial.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(partial)) as new:
            old.backup(new)
        partial.replace(copy)
    return copy


class Reserve:
    """A file of zeros beside the database, given up when the disk is full, so that what is in hand can be written."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def take(self) -> None:
        """Make it, in full. Raises OSError where there is no room even for that."""
        with open(self._path, "wb") as file:
            file.write(bytes(RESERVE_BYTES))

    def give_up(self) -> bool:
        """Whether there was one."""
        there = self._path.exists()
        self._path.unlink(missing_ok=True)
        return there
