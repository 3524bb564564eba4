"""Connections to the lab's database, for those who write and for those who only read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from engine import errors
from lab.trouble import BadDatabase, require_sqlite

DB_ENV = "FRONTIER_DB"


def parsed_url(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadDatabase(f"{DB_ENV}: {error}") from error
    return parsed


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite database; None for a server, or for one in memory."""
    parsed = parsed_url(url)
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def _read_only(path: Path, wait_s: float) -> Callable[[], sqlite3.Connection]:
    """Connects to a file that is not changed. Where nothing may be written beside it and no journal lies there, SQLite
    is told that nobody else does either, since it could not make the files that readers share."""
    journal = path.with_name(f"{path.name}-wal")
    still = not is_writable(path) and not (journal.is_file() and journal.stat().st_size)
    address = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if still else ''}"
    return lambda: sqlite3.connect(address, uri=True, timeout=wait_s, check_same_thread=False)


def is_writable(path: Path) -> bool:
    """Whether a database file can be written, and its journals beside it."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path, path.absolute().parent))


def connect(url: str, *, read_only: bool, wait_s: float) -> Engine:
    """An engine of SQLAlchemy. Raises `BadDatabase`, `errors.NotBuilt`, `errors.MissingTool`."""
    parsed = parsed_url(url)
    backend, path = parsed.get_backend_name(), sqlite_path(url)
    try:
        if backend not in ("sqlite", "postgresql"):
            raise errors.NotBuilt(f"the lab's database on {backend}", "use an sqlite:/// or postgresql:// URL")
        options: dict[str, Any] = {"connect_args": {"timeout": wait_s}} if backend == "sqlite" else {}
        if path is not None:
            require_sqlite(parsed.render_as_string(), path, read_only=read_only)
            options = {"creator": _read_only(path, wait_s)} if read_only else options
        engine = create_engine(parsed, **options)
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadDatabase(f"{DB_ENV}: {error}") from error
    except ModuleNotFoundError as error:
        raise errors.MissingTool(f"{url.split(':')[0]} needs a driver; run: pip install {error.name}") from error
    if backend == "sqlite":

        @event.listens_for(engine, "connect")
        def _plain(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # the driver then never commits by itself in the midst of a migration
            connection.execute("PRAGMA foreign_keys = ON")
            if read_only:
                return
            # Readers do not wait for a running experiment, and a sample's row costs no disk flush next to a timed
            # sample. What a dead process wrote stays; only a power cut may lose the last rows.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")

        @event.listens_for(engine, "begin")
        def _begin(connection: Any) -> None:
            # Two processes that write migrate one after the other.
            connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine
