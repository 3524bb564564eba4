"""Files that change together, or not at all: each new text is written beside its file first, then all are renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine import errors


class NotWritable(errors.FrontierError):
    """A file cannot be changed, and so none of those was that were to change with it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} cannot be changed ({why}); nothing was changed: make it writable, then run this again"
        )


@dataclass
class Staged:
    """Changes that lie ready. texts: file -> its new text, None to remove it; kept: what was there, once it is done."""

    texts: Mapping[Path, str | None]
    kept: dict[Path, bytes | None] = field(default_factory=dict)

    def commit(self) -> None:
        """Put every file in place; a second call does nothing. Raises `NotWritable`, and all files are as they were."""
        for path, text in self.texts.items():
            if path in self.kept:
                continue
            before = path.read_bytes() if path.is_file() else None
            try:
                if text is None:
                    path.unlink()
                else:
                    os.replace(beside(path), path)
            except OSError as error:
                self.undo()
                raise NotWritable(path, str(error.strerror)) from error
            self.kept[path] = before

    def undo(self) -> None:
        """Put back what was there."""
        for path, before in self.kept.items():
            if before is None:
                path.unlink()
            else:
                path.write_bytes(before)
        self.kept.clear()


def beside(path: Path) -> Path:
    """The temporary name of a file that is being written."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def staged(texts: Mapping[Path, str | None]) -> Iterator[Staged]:
    """Write the new texts beside their files, for `commit`. An error in the block undoes what was committed; nothing is
    left beside. Raises `NotWritable` before anything is changed where a file or its folder is not writable."""
    changes = Staged(texts)
    try:
        for path, text in texts.items():
            _stage(path, text)
        try:
            yield changes
        except BaseException:
            changes.undo()
            raise
    finally:
        for path in texts:
            if beside(path).is_file():
                beside(path).unlink()


def _stage(path: Path, text: str | None) -> None:
    for needed in (path, path.parent):
        if needed.exists() and not os.access(needed, os.W_OK):
            raise NotWritable(needed, "it is read-only")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside(path).write_text(text or "", encoding="utf-8")
    except OSError as error:
        raise NotWritable(path, str(error.strerror)) from error
