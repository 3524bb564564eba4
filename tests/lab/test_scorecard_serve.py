"""`--serve`: the pages beside a read-only view of a copy of the database, on this machine alone."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
from pathlib import Path

import httpx
import pytest
from scorecard_fakes import KEY, filled

from engine import errors
from lab.console import Output
from lab.scorecard import files, serve
from lab.store import Store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("db") / "lab.sqlite")


def ask(app: serve.App, *lines: tuple[str, str]) -> list[httpx.Response]:
    async def all_of() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.request(method, path) for method, path in lines]

    return asyncio.run(all_of())


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("not asked")


def test_pages_are_served_and_nothing_else_and_nothing_is_taken() -> None:
    app = serve.beside({"/": b"first", "/k/scorecard.html": b"page", "/k/a.csv": b"1"}, nothing)
    found = ask(
        app, ("GET", "/"), ("GET", "/k/scorecard.html"), ("HEAD", "/k/a.csv"), ("GET", "/../etc/passwd"), ("POST", "/")
    )
    assert [response.status_code for response in found] == [200, 200, 200, 404, 405]
    assert found[1].text == "page"
    assert found[2].headers["content-type"].startswith("text/csv")
    assert found[2].content == b""


def test_what_is_served_is_a_copy_as_it_is_now(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that only the write-ahead log holds are in it; writing to the real database does not change it."""
    monkeypatch.setattr(files, "draw", lambda card: [])
    with Store.open(str(database)) as store:
        copy = serve.snapshot(store, tmp_path)
        with sqlite3.connect(f"file:{copy}?immutable=1", uri=True) as db:
            (count,) = db.execute("SELECT count(*) FROM scorecard_samples").fetchone()
            assert count == 24
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                db.execute("CREATE TABLE x (y)")
        pages = serve.pages(store, None, ())
    assert f"/{KEY}/scorecard.html" in pages
    assert f'href="/{KEY}/scorecard.html"' in pages["/"].decode()
    assert not copy.with_name("lab.db-wal").exists()


def test_without_datasette_the_extra_is_named(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    named = pytest.raises(errors.MissingTool, match=r"pip install 'mlx-frontier\[serve\]'")
    with Store.open(str(database)) as store, named:
        serve.serve(store, None, (), 0, Output(as_json=False))


def test_datasette_shows_the_rows_and_takes_no_writes(database: Path, tmp_path: Path) -> None:
    """Through Datasette itself, as it is served: under its own path, immutable, without a download."""
    with Store.open(str(database)) as store:
        app = serve.beside({"/": b"first"}, serve.view(serve.snapshot(store, tmp_path)))
    rows = "/data/lab/scorecard_samples.json?_size=1&_shape=array"
    bad = "/data/lab.json?sql=delete+from+scorecard_sample"
    found = ask(app, ("GET", "/"), ("GET", rows), ("GET", "/data/"), ("GET", bad), ("GET", "/data/lab.db"))
    assert found[0].text == "first"
    assert found[1].json()[0]["recipe"]
    assert "/data/lab" in found[2].text
    assert found[3].status_code == 400
    assert found[4].status_code == 403


def test_it_listens_on_this_machine_alone() -> None:
    assert serve.HOST == "127.0.0.1"
