"""Rows of a task's data, checked where they are read, and the order of its items."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine import errors
from evals.sources import Source, json_lines
from evals.task import Item


@dataclass(frozen=True)
class Row:
    """One row. where: its file and line, for messages."""

    where: str
    values: Mapping[str, Any]

    def _value(self, path: tuple[str, ...], kind: type) -> Any:
        found: Any = self.values
        for name in path:
            if not isinstance(found, Mapping) or name not in found:
                raise errors.CorruptFile(self.where, f"has no {'.'.join(path)}")
            found = found[name]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise errors.CorruptFile(
                self.where, f"{'.'.join(path)} is a {type(found).__name__}, should be {kind.__name__}"
            )
        return found

    def text(self, *path: str) -> str:
        """The text at a path of names. Raises `errors.CorruptFile` where there is none."""
        return str(self._value(path, str))

    def integer(self, *path: str) -> int:
        """The integer at a path of names. Raises `errors.CorruptFile` where there is none."""
        return int(self._value(path, int))

    def texts(self, *path: str) -> tuple[str, ...]:
        """The list of one or more texts at a path of names. Raises `errors.CorruptFile` where there is none."""
        found = self._value(path, list)
        if not found or not all(isinstance(text, str) for text in found):
            raise errors.CorruptFile(self.where, f"{'.'.join(path)} should be a list of one or more texts")
        return tuple(found)


def read_rows(source: Source, path: str) -> list[Row]:
    """The rows of a member of JSON lines. Raises what `evals.sources.json_lines` raises."""
    lines = json_lines(source, path)
    return [Row(f"{source.filename}: {path} line {number}", values) for number, values in enumerate(lines, 1)]


def fair(items: Iterable[Item], where: str) -> tuple[Item, ...]:
    """The items in the order of the sha256 of their ids: fixed, and without regard to what they ask.

    Raises `errors.CorruptFile`, naming `where`, if two have the same id.
    """
    ordered = sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest())
    twice = [name for name, count in Counter(item.id for item in ordered).items() if count > 1]
    if twice:
        raise errors.CorruptFile(where, f"holds {twice[0]} more than once")
    return tuple(ordered)


def arrow_rows(data: bytes, name: str) -> list[dict[str, Any]]:
    """The rows of an Arrow stream. name: for messages. Raises `errors.CorruptFile` for what is none, or cut short."""
    try:
        with pa.ipc.open_stream(data) as stream:
            rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, ValueError) as error:
        raise errors.CorruptFile(name, f"is no Arrow stream: {error}") from error
    return rows
