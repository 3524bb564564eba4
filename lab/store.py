"""The lab's database: opens and migrates it, writes rows as things happen, answers the lab's few questions.

SQLite by default (`FRONTIER_DB`, else ./lab.sqlite), any SQLAlchemy URL of SQLite or PostgreSQL. Each write is its own
transaction, so that a run that dies leaves what it had measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from engine import errors
from lab.connect import DB_ENV, connect, is_writable, parsed_url, sqlite_path
from lab.tables import (
    ArmRow,
    Base,
    BreadcrumbRow,
    ComparisonRow,
    DecisionRow,
    ExperimentRow,
    SampleRow,
    SessionEventRow,
    SessionRow,
)
from lab.trouble import (
    BadDatabase,
    DatabaseFull,
    Reserve,
    check_file,
    check_revision,
    explained,
    keep_copy,
)

__all__ = ["BadDatabase", "Store"]

DEFAULT_FILE = "lab.sqlite"
MIGRATIONS = Path(__file__).resolve().parent / "migrations"
ANALYSIS = (
    "stats.py", "decide.py", "judge.py", "design.py", "measure.py", "stability.py", "verdict.py", "evidence.py",
    "fidelity.py", "targets.py", "declared.py", "frontier.py", "pair_frontier.py", "rivals.py", "judging.py",
    "sampler_gate.py", "diversity.py",
)  # fmt: skip
LOCK_WAIT_S = 60

R = TypeVar("R", bound=Base)
T = TypeVar("T")


class NoDatabase(errors.FrontierError):
    """There is no database where one is to be read."""

    def __init__(self, where: str) -> None:
        super().__init__(f"no database at {where}")


def now() -> str:
    """This moment as UTC ISO text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def digest(document: object) -> str:
    """sha256 of a JSON document in canonical form."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def analysis_sha256() -> str:
    """Hash of the code that turns samples into verdicts; derived rows carry it."""
    here = Path(__file__).resolve().parent
    return hashlib.sha256(b"\0".join((here / name).read_bytes() for name in ANALYSIS)).hexdigest()


def database_url(url: str | None = None) -> str:
    """`url`, else FRONTIER_DB (a URL, or a file), else ./lab.sqlite."""
    asked = url or os.environ.get(DB_ENV) or DEFAULT_FILE
    return asked if "://" in asked else f"sqlite:///{Path(asked).absolute()}"


def exists(url: str | None = None) -> bool:
    """Whether there is a database already; a server is taken to exist. Raises `BadDatabase` for what is no URL."""
    parsed = parsed_url(database_url(url))
    return parsed.get_backend_name() != "sqlite" or Path(parsed.database or "").is_file()


def place(url: str | None = None) -> str:
    """Where the database is, or would be: a file, or a URL without its password."""
    parsed = parsed_url(database_url(url))
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


def existing(url: str | None = None) -> Store | None:
    """The database opened for a command that only reads, which never makes one.

    None where there is none and none was named: an empty history. Raises `NoDatabase` where `url` or FRONTIER_DB names
    one that does not exist, and as `Store.open` does.
    """
    if exists(url):
        return Store.open(url, read_only=True)
    if url or os.environ.get(DB_ENV):
        raise NoDatabase(place(url))
    return None


def _alembic() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


class Store:
    """An open database at the newest schema. `with Store.open() as store: ...`"""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine, self.url = engine, make_url(url).render_as_string(hide_password=True)
        self._path = sqlite_path(url)
        self._reserve = None if self._path is None else Reserve(self._path)
        self._holds_reserve = False

    @classmethod
    def open(cls, url: str | None = None, *, read_only: bool = False) -> Store:
        """Open, create where missing, migrate; an older schema leaves a copy of the file beside it. read_only: nothing
        is made or written, but for that migration where it can be, which a line on stderr then tells.

        Raises `BadDatabase` (corrupt, of a newer version, or not the lab's), `DatabaseLocked`, `DatabaseFull`,
        `errors.NotBuilt`, `errors.MissingTool`.
        """
        address = database_url(url)
        store = cls(connect(address, read_only=read_only, wait_s=LOCK_WAIT_S), address)
        try:
            if read_only and not store._is_newest():
                store.close()
                store = cls.open(url)
                print(f"note: {store.url} had an older schema and was migrated; a copy lies beside it", file=sys.stderr)
                return store
            if not read_only:
                store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    def _is_newest(self) -> bool:
        """Whether a database that is only read has the newest schema. Raises `BadDatabase` where it has not and cannot
        be migrated either."""
        script = ScriptDirectory.from_config(_alembic())
        try:
            with self._explained(), self._engine.begin() as connection:
                if self._path is not None:
                    check_file(connection, self.url, self._path)
                current = MigrationContext.configure(connection).get_current_revision()
                check_revision(connection, current, [each.revision for each in script.walk_revisions()], self.url)
        except DatabaseError as error:
            raise BadDatabase(f"{self.url}: {error.orig}; copy it and its journals to a folder of yours") from error
        newest = current == script.get_current_head()
        if not newest and self._path is not None and not is_writable(self._path):
            raise BadDatabase(
                f"{self.url}: it has schema {current}, older than this version's, and is read-only; copy it"
            )
        return newest

    def _migrate(self) -> None:
        config = _alembic()
        script = ScriptDirectory.from_config(config)
        try:
            with self._explained(), self._engine.begin() as connection:
                if self._path is not None:
                    check_file(connection, self.url, self._path)
                current = MigrationContext.configure(connection).get_current_revision()
                check_revision(connection, current, [each.revision for each in script.walk_revisions()], self.url)
                if self._path is not None and current not in (None, script.get_current_head()):
                    keep_copy(self._path, str(current))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except DatabaseError as error:
            raise BadDatabase(f"{self.url}: {error.orig}") from error

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.url, self._path, LOCK_WAIT_S)

    def reserve(self) -> None:
        """Set room aside on the database's disk, so that the last of what is measured fits when the disk is full."""
        if self._reserve is not None:
            self._reserve.take()
            self._holds_reserve = True

    def _write(self, work: Callable[[Session], T]) -> T:
        """Do `work` in one transaction. On a full disk the reserve is given up for it, and `DatabaseFull` says so."""
        try:
            with self._explained(), Session(self._engine) as session, session.begin():
                return work(session)
        except DatabaseFull:
            if self._reserve is None or not self._reserve.give_up():
                raise
            with self._explained(), Session(self._engine) as session, session.begin():
                work(session)
            raise

    @property
    def file(self) -> Path | None:
        """The file that it lies in; None for a server."""
        return self._path

    def close(self) -> None:
        if self._reserve is not None and self._holds_reserve:
            self._reserve.give_up()
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, row: Base) -> int:
        """Insert one row, committed at once; returns its id. A session's row sets room aside for all that follows."""
        if isinstance(row, SessionRow):
            self.reserve()

        def insert(session: Session) -> int:
            session.add(row)
            session.flush()
            return row.id

        return self._write(insert)

    def add_all(self, rows: Sequence[Base]) -> None:
        """Insert rows in one transaction: all of them, or none."""
        self._write(lambda session: session.add_all(rows))

    def once(self, row: R, **key: object) -> int:
        """The id of the row that `key` names, inserted if it is new."""
        kind = type(row)

        def find_or_insert(session: Session) -> int:
            found = session.scalars(select(kind).filter_by(**key)).first()
            if found is None:
                session.add(row)
                session.flush()
                found = row
            return found.id

        return self._write(find_or_insert)

    def rows(self, kind: type[R], **key: object) -> list[R]:
        """Rows in the order of their ids, detached."""
        with self._explained(), Session(self._engine, expire_on_commit=False) as session:
            return list(session.scalars(select(kind).filter_by(**key).order_by(kind.id)))

    def declare(self, row: ExperimentRow) -> int:
        """The experiment's row; what a file changed since (an extension) is taken over, its state is not."""

        def find_or_insert(session: Session) -> int:
            found = session.scalars(select(ExperimentRow).filter_by(name=row.name)).first()
            if found is None:
                session.add(row)
                session.flush()
                return row.id
            found.hypothesis, found.owner = row.hypothesis, row.owner
            found.kind, found.quality_class = row.kind, row.quality_class
            found.primary_metric = row.primary_metric
            found.declared_on, found.expires_on = row.declared_on, row.expires_on
            return found.id

        return self._write(find_or_insert)

    def set_state(self, experiment_id: int, state: str) -> None:
        def change(session: Session) -> None:
            session.get_one(ExperimentRow, experiment_id).state = state

        self._write(change)

    def end_experiment(
        self, experiment_id: int, state: str, breadcrumb: BreadcrumbRow, then: Callable[[], None]
    ) -> None:
        """What is left of an experiment, and its state ("" keeps it). `then` is called before the rows are committed:
        if it raises, there are none."""

        def change(session: Session) -> None:
            session.add(breadcrumb)
            if state:
                session.get_one(ExperimentRow, experiment_id).state = state
            session.flush()
            then()

        self._write(change)

    def event(self, session_id: int, name: str, detail: Mapping[str, Any]) -> None:
        """Note what happened to a session."""
        self.add(SessionEventRow(session_id=session_id, at=now(), event=name, detail=dict(detail)))

    def replace_comparisons(self, session_id: int, rows: Sequence[ComparisonRow]) -> list[int]:
        """Drop a session's derived rows and write them anew; returns their ids.

        A row of the same use and metric keeps its id, so that the evidence of earlier decisions still points at it.
        """

        def replace(session: Session) -> list[int]:
            ids = {}
            for old in session.scalars(select(ComparisonRow).filter_by(session_id=session_id)):
                ids[(old.use, old.metric)] = old.id
                session.delete(old)
            session.flush()
            for row in rows:
                row.id = ids.get((row.use, row.metric), row.id)
            session.add_all(rows)
            session.flush()
            return [row.id for row in rows]

        return self._write(replace)

    def experiment(self, name: str) -> ExperimentRow | None:
        found = self.rows(ExperimentRow, name=name)
        return found[0] if found else None

    def decisions(self, name: str) -> list[DecisionRow]:
        """All decisions on an experiment, oldest first."""
        row = self.experiment(name)
        return [] if row is None else self.rows(DecisionRow, experiment_id=row.id)

    def sessions(self, name: str) -> list[SessionRow]:
        row = self.experiment(name)
        return [] if row is None else self.rows(SessionRow, experiment_id=row.id)

    def samples(self, session_id: int) -> list[SampleRow]:
        return self.rows(SampleRow, session_id=session_id)

    def outcome(self, session_id: int) -> str:
        """How a session ended: finished, failed, or "open" (running, or killed)."""
        events = [e.event for e in self.rows(SessionEventRow, session_id=session_id)]
        last = next((name for name in reversed(events) if name in ("finished", "failed", "resumed")), "open")
        return "open" if last == "resumed" else last

    def breadcrumbs(self) -> set[str]:
        """Names of deleted experiments that left their numbers."""
        return {row.experiment_name for row in self.rows(BreadcrumbRow)}

    def arms(self, experiment_id: int) -> list[ArmRow]:
        return self.rows(ArmRow, experiment_id=experiment_id)
