"""The user's cache folder, and files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CACHE_ENV = "FRONTIER_CACHE"


def cache_folder(*parts: str) -> Path:
    """A folder in the user cache, made if need be: $FRONTIER_CACHE, else the platform's place for caches."""
    if CACHE_ENV in os.environ:
        root = Path(os.environ[CACHE_ENV])
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "mlx-frontier"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlx-frontier"
    folder = root.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write `content` under a temporary name beside `path`, then rename: `path` is either old or complete. mode: who
    may read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
