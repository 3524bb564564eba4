"""`frontier scorecard --serve`: the pages, and Datasette's read-only view of the database beside them.

What is served is a copy of the database as it is now, opened immutable: the page and the view agree, and nobody who
reaches the port can write. The port listens on this machine alone.
"""

from __future__ import annotations

import html
import importlib.util
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from engine import errors
from lab.console import Output
from lab.scorecard.files import PAGE, render
from lab.scorecard.load import keys_to_show, load
from lab.store import Store

HOST = "127.0.0.1"
VIEW = "/data/"
TYPES = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
}

Message = Mapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


def require_datasette() -> None:
    """Raise `MissingTool` with the extra that brings it."""
    if importlib.util.find_spec("datasette") is None:
        raise errors.MissingTool("--serve needs Datasette; run: pip install 'mlx-frontier[serve]'")


def snapshot(store: Store, folder: Path) -> Path:
    """A copy of the database in one file, as it is now. Raises `NotBuilt` for a database that is no file."""
    source = store.file
    if source is None:
        raise errors.NotBuilt("--serve on a database server", "Datasette reads SQLite files: serve a copy of one")
    copy = folder / "lab.db"
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")
    return copy


def pages(store: Store, key: str | None, models: Sequence[str]) -> dict[str, bytes]:
    """Every file of the pages that are asked for, by its path."""
    keys = keys_to_show(store, key, models)
    found = {f"/{each}/{name}": data for each in keys for name, data in render(load(store, each, models)).items()}
    return {"/": index(keys).encode(), **found}


def index(keys: Sequence[str]) -> str:
    """The first page: a link to each machine's scorecard and to the database."""
    links = "".join(f'<li><a href="/{html.escape(key)}/{PAGE}">{html.escape(key)}</a></li>' for key in keys)
    style = ":root{color-scheme:light dark}body{font:16px/1.55 system-ui,sans-serif;margin:2rem auto;padding:0 1.25rem}"
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"{meta}<title>Scorecards</title><style>{style}</style>"
    body = f'<h1>Scorecards</h1><ul>{links}</ul><p><a href="{VIEW}">The database, read-only</a></p>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def view(copy: Path) -> App:
    """Datasette on an immutable copy, under `VIEW`."""
    from datasette.app import Datasette

    settings = {"base_url": VIEW, "allow_download": False, "default_allow_sql": True, "sql_time_limit_ms": 5000}
    app: App = Datasette([], immutables=[str(copy)], settings=settings).app()
    return app


def beside(files: Mapping[str, bytes], data: App) -> App:
    """One app: the files at their paths, everything under `VIEW` from Datasette, GET and HEAD alone."""

    async def app(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        path = scope.get("path", "")
        if scope["type"] == "lifespan" or path.startswith(VIEW):
            await data(scope, receive, send)
            return
        read = scope["method"] in ("GET", "HEAD")
        body = files.get(path) if read else None
        status = 405 if not read else 200 if body is not None else 404
        kind = TYPES.get(path.rsplit(".", 1)[-1], TYPES["html"]) if body is not None else "text/plain"
        text = body if body is not None else {404: b"not here", 405: b"read-only"}[status]
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})

    return app


def serve(store: Store, key: str | None, models: Sequence[str], port: int, out: Output) -> int:
    """Serve until interrupted. Raises `MissingTool`, `NotBuilt`, and what loading the pages raises."""
    require_datasette()
    import uvicorn

    keys_to_show(store, key, models)  # what is missing is missing in this file, not in the copy that is served
    with tempfile.TemporaryDirectory() as scratch:
        copy = snapshot(store, Path(scratch))
        with Store.open(str(copy)) as frozen:
            files = pages(frozen, key, models)
        config = uvicorn.Config(beside(files, view(copy)), host=HOST, port=port, log_level="warning")
        listening = config.bind_socket()
        here = listening.getsockname()[1]
        out.line(f"scorecard: http://{HOST}:{here}/ (database: http://{HOST}:{here}{VIEW}); Ctrl-C ends it")
        out.document({"url": f"http://{HOST}:{here}/", "database": f"http://{HOST}:{here}{VIEW}"})
        uvicorn.Server(config).run(sockets=[listening])
    return 0
