"""One timing run at a time on a machine: two would time each other."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import cache_folder, errors

LOCK_NAME = "timing.lock"


class TimingBusy(errors.FrontierError):
    """Another timing run holds this machine."""


def lock_path() -> Path:
    """The lock of this machine, in the user's cache."""
    return cache_folder("locks") / LOCK_NAME


@contextmanager
def hold_timing(what: str, path: Path | None = None) -> Iterator[None]:
    """Hold the machine for timing. Raises `TimingBusy` with the other's pid and what it runs.

    The lock belongs to the open file and ends with the process, however that ends; what is written in the file is for
    the reader only.
    """
    path = path or lock_path()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TimingBusy(f"{_holder(path)}; two timing runs on one machine would time each other") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "what": what}).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if not text:  # it has the lock and has not yet written who it is
        return "another timing run has just begun"
    holder = json.loads(text)
    return f"process {holder['pid']} runs {holder['what']!r}"
