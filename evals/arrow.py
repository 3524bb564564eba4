"""Rows of an Arrow IPC stream as the data packages hold them: text, integers, lists of those; plain and without nulls.

Written from the published format (columnar format 1.x, "Serialization and Interprocess Communication", with its
flatbuffers schemas Message.fbs and Schema.fbs), so that a few small files need no library of 50 MB. Anything else that
the format allows (nulls, dictionaries, compression, other types) is refused by name, never guessed.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine import errors

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_INT, _UTF8, _LIST = 2, 5, 12
_INTEGERS = {(8, True): "b", (16, True): "h", (32, True): "i", (64, True): "q"}


class _Refused(Exception):
    """Why a stream cannot be read."""


@dataclass(frozen=True)
class _Table:
    """A flatbuffers table: the bytes and its position. Fields are found through its vtable; 0 means absent."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number("I", data, 0))

    def _field(self, index: int) -> int:
        vtable = self.at - _number("i", self.data, self.at)
        slot = 4 + 2 * index
        entry = _number("H", self.data, vtable + slot) if slot < _number("H", self.data, vtable) else 0
        return self.at + entry if entry else 0

    def number(self, index: int, kind: str) -> int:
        """Of the kind that `struct` calls so; 0 where it is absent, which is every default in these schemas."""
        at = self._field(index)
        return _number(kind, self.data, at) if at else 0

    def table(self, index: int) -> _Table | None:
        at = self._field(index)
        return _Table(self.data, at + _number("I", self.data, at)) if at else None

    def needed(self, index: int) -> _Table:
        found = self.table(index)
        if found is None:
            raise _Refused(f"a table lacks its field {index}")
        return found

    def text(self, index: int) -> str:
        found = self.needed(index)
        return _slice(self.data, found.at + 4, _number("I", self.data, found.at)).decode("utf-8")

    def tables(self, index: int) -> tuple[_Table, ...]:
        vector = self.table(index)
        if vector is None:
            return ()
        starts = (vector.at + 4 + 4 * i for i in range(_number("I", self.data, vector.at)))
        return tuple(_Table(self.data, at + _number("I", self.data, at)) for at in starts)

    def pairs(self, index: int) -> tuple[tuple[int, int], ...]:
        """A vector of structs of two int64."""
        vector = self.needed(index)
        count = _number("I", self.data, vector.at)
        flat = _numbers("q", self.data, vector.at + 4, 2 * count)
        return tuple(zip(flat[::2], flat[1::2], strict=True))


def _slice(data: bytes, start: int, length: int) -> bytes:
    if start < 0 or length < 0 or start + length > len(data):
        raise _Refused(f"it ends at byte {len(data)}, inside of a part of {length} bytes at {start}")
    return data[start : start + length]


def _numbers(kind: str, data: bytes, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}{kind}", _slice(data, at, count * struct.calcsize(f"<{kind}")))


def _number(kind: str, data: bytes, at: int) -> int:
    return _numbers(kind, data, at, 1)[0]


class _Batch:
    """The columns of one record batch, read in the order of the schema, parents before children."""

    def __init__(self, table: _Table, body: bytes) -> None:
        if table.table(3) is not None:
            raise _Refused("its batches are compressed, which is not read")
        self.length = table.number(0, "q")
        self._nodes = list(reversed(table.pairs(1)))
        self._buffers = list(reversed(table.pairs(2)))
        self._body = body

    def _buffer(self) -> bytes:
        start, length = self._buffers.pop()
        return _slice(self._body, start, length)

    def column(self, field: _Table) -> list[Any]:
        name = field.text(0)
        kind = field.number(2, "B")
        length, nulls = self._nodes.pop()
        if field.table(4) is not None or nulls:
            raise _Refused(f"column {name!r} holds {nulls} nulls or a dictionary, which is not read")
        self._buffer()  # the bits that say which values are there: all of them
        if kind == _INT:
            integer = field.needed(3)
            width = (integer.number(0, "i"), bool(integer.number(1, "B")))
            if width not in _INTEGERS:
                raise _Refused(f"column {name!r} holds integers of {width[0]} bits, signed {width[1]}; not read")
            return list(_numbers(_INTEGERS[width], self._buffer(), 0, length))
        if kind not in (_UTF8, _LIST):
            raise _Refused(f"column {name!r} is of type {kind}; read are integers, text and lists")
        ends = _numbers("i", self._buffer(), 0, length + 1) if length else (0,)
        if kind == _UTF8:
            data = self._buffer()
            return [_slice(data, a, b - a).decode("utf-8") for a, b in itertools.pairwise(ends)]
        values = self.column(field.tables(5)[0])
        if any(a < 0 or b < a for a, b in itertools.pairwise(ends)) or ends[-1] > len(values):
            raise _Refused(f"column {name!r}: its lists reach outside of their values")
        return [values[a:b] for a, b in itertools.pairwise(ends)]


def _messages(data: bytes) -> Iterator[tuple[_Table, bytes]]:
    """(message, body) of a stream, up to its end mark. A stream without one was cut off."""
    at = 0
    while True:
        mark, size = _numbers("I", data, at, 2)
        if mark != _CONTINUATION:
            raise _Refused(f"no message starts at byte {at}")
        if size == 0:
            return
        message = _Table.root(_slice(data, at + 8, size))
        body = _slice(data, at + 8 + size, message.number(3, "q"))
        at += 8 + size + len(body)
        yield message, body


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    fields: tuple[_Table, ...] = ()
    for message, body in _messages(data):
        kind = message.number(1, "B")
        if kind == _SCHEMA:
            fields = message.needed(2).tables(1)
        elif kind == _RECORD_BATCH:
            batch = _Batch(message.needed(2), body)
            columns = {field.text(0): batch.column(field) for field in fields}
            if not columns or any(len(values) != batch.length for values in columns.values()):
                raise _Refused(f"its {len(columns)} columns are not of the {batch.length} rows that a batch claims")
            for i in range(batch.length):
                yield {name: values[i] for name, values in columns.items()}
        else:
            raise _Refused(f"it holds a message of kind {kind}, which is not read")


def arrow_rows(data: bytes, name: object) -> list[dict[str, Any]]:
    """All rows of a stream. name: of the file, for messages. Raises `errors.CorruptFile`."""
    try:
        return list(_rows(data))
    except (_Refused, UnicodeDecodeError, IndexError) as error:
        raise errors.CorruptFile(name, f"no readable Arrow stream: {error}") from error
