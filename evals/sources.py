"""Where evaluation data comes from: pinned files of the package index, read from the archive, never installed.

Under construction: see `Source`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import errors


class MissingData(errors.FrontierError):
    """Data that has not been fetched; the message says which command fetches it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A wheel or sdist of the package index. licence: of the data. about: what it is."""

    name: str
    requirement: str
    filename: str
    sha256: str
    archive_bytes: int
    licence: str
    about: str
