"""What every cache of keys and values shares, whatever tokens it keeps: buffers of a scheme's parts."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Self

import mlx.core as mx

from engine.kv.base import LayerKV
from engine.kv.buffers import capacity, part, room, write
from engine.kv.scheme import Scheme
from engine.kv.storage import Parts, Storage
from engine.types import CacheLayer


class BufferedKV(LayerKV):
    """Keys and values of one layer. `layout`: which tokens are kept, as reports name it."""

    def __init__(self, layout: str, scheme: Scheme) -> None:
        self.layout, self.scheme = layout, scheme
        self.offset = 0
        self._keys: Parts | None = None
        self._values: Parts | None = None
        self._lent: Callable[[], tuple[Parts | None, Parts | None]] | None = None

    @property
    def keys(self) -> Parts | None:
        """What is stored of the keys, wherever it lies; None before the first append."""
        return self._keys if self._lent is None else self._lent()[0]

    @keys.setter
    def keys(self, keys: Parts | None) -> None:
        self._take_back()
        self._keys = keys

    @property
    def values(self) -> Parts | None:
        """As `keys`."""
        return self._values if self._lent is None else self._lent()[1]

    @values.setter
    def values(self, values: Parts | None) -> None:
        self._take_back()
        self._values = values

    def lend(self, read: Callable[[], tuple[Parts | None, Parts | None]]) -> None:
        """Let keys and values lie elsewhere, where `read` finds them, until they are set again."""
        self._keys = self._values = None
        self._lent = read

    def _take_back(self) -> None:
        if self._lent is not None:
            read, self._lent = self._lent, None
            self._keys, self._values = read()

    @abstractmethod
    def marks(self) -> tuple[int, ...]:
        """Its counters; the offset first."""

    @abstractmethod
    def mark(self, marks: tuple[int, ...]) -> None:
        """Take `marks` as its counters."""

    @abstractmethod
    def counted(self, marks: tuple[int, ...], space: int, length: int) -> tuple[tuple[int, ...], int]:
        """What `append` of `length` tokens makes of its counters and of the tokens that it has room for, without
        arrays: a projection counts with it."""

    @abstractmethod
    def counted_ones(self, marks: tuple[int, ...], space: int, count: int) -> tuple[tuple[int, ...], int]:
        """What so many `counted` of one token make, in a time that does not grow with them."""

    @abstractmethod
    def place(self) -> tuple[int, int, int]:
        """Make room for one more token: where in its buffers it goes, the first key that it sees there and the one
        behind the last. The token itself is neither written nor counted. Not before the first append."""

    def after_one(self) -> tuple[int, ...]:
        return self.counted(self.marks(), 0 if self.keys is None else capacity(self.keys), 1)[0]

    @property
    def kind(self) -> str:
        return f"{self.scheme.name} {self.layout}"

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        sides = ((self.keys, self.scheme.keys), (self.values, self.scheme.values))
        return self.marks(), tuple(x for parts, side in sides for x in parts or (None,) * side.count)

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        self.mark(marks)
        present = tuple(x for x in arrays if x is not None)
        count = self.scheme.keys.count
        self.keys, self.values = (present[:count], present[count:]) if present else (None, None)

    def converted(self, scheme: Scheme) -> Self:
        """The same tokens under another scheme, slack included, as mlx-lm's to_quantized does; this one is spent."""
        twin = copy.copy(self)
        twin.scheme = scheme
        twin.keys = _repacked(self.keys, self.scheme.keys, scheme.keys)
        self.keys = None
        twin.values = _repacked(self.values, self.scheme.values, scheme.values)
        self.values = None
        return twin

    def describe(self, layer: int) -> CacheLayer:
        arrays = self.arrays()
        return CacheLayer(
            layer=layer,
            scheme=self.scheme.name,
            layout=self.layout,
            offset=self.offset,
            dtype=str(arrays[0].dtype).removeprefix("mlx.core.") if arrays else "empty",
            bits=self.scheme.keys.bits,
            value_bits=self.scheme.values.bits,
            group_size=self.scheme.keys.group_size,
            kv_bytes=self.nbytes,
        )


def _repacked(buffer: Parts | None, old: Storage, new: Storage) -> Parts | None:
    if buffer is None:
        return None
    tokens, packed = capacity(buffer), None
    for start in range(0, tokens, new.block):
        block = new.pack(old.unpack(part(buffer, start, start + new.block)))
        if tokens <= new.block:
            return block
        packed = packed or room(block, tokens)
        write(packed, block, start)
        mx.eval(packed)  # or the work of every block would be alive at once
    return packed
