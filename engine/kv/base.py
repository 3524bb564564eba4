"""The contract of a layer's memory: what every cache can do, and what a KV scheme adds.

Letters: B rows, H query heads, K key/value heads, L query length, S keys so far, D head dimension.
A graph calls `append` once and `attend` on the view it returns; it never asks which scheme it holds.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.masks import Masks
from engine.types import CacheLayer

# Tokens before a forward's: one number, or int32 [B] where rows differ.
Offset = int | mx.array


class Offsets:
    """Tokens in each of B rows, as a forward takes them: made once a step for all of its layers. always: as an array
    also where one number would do."""

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self._counts: tuple[int, ...] = ()
        self._array = mx.array(0)

    def __call__(self, counts: tuple[int, ...]) -> Offset:
        """One number where all rows agree and may, else int32 [B]."""
        if not self._always and len(set(counts)) == 1:
            return counts[0]
        if counts != self._counts:
            self._counts, self._array = counts, mx.array(counts, mx.int32)
        return self._array


def one(offset: Offset) -> int:
    """The offset of a forward whose rows all have the same; modules that need it run no others (graph/rows.py)."""
    assert isinstance(offset, int)
    return offset


@dataclass(frozen=True)
class Saved:
    """A cache at one moment. `marks`: its counters; `arrays`: what it stores, None where nothing is yet.

    The arrays are handles of their own: writing into the cache they came from leaves them as they are.
    """

    kind: str
    marks: tuple[int, ...]
    arrays: tuple[mx.array | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(a.nbytes for a in self.arrays if a is not None)


class LayerCache(ABC):
    """One layer's memory. `offset`: tokens that were appended, in the longest row.

    ragged: whether rows of unequal length may lie side by side in it; else its arrays have their tokens on axis 2.
    """

    ragged: ClassVar[bool] = False
    offset: int

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it holds: caches of one kind take each other's snapshots and rows."""

    @abstractmethod
    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        """Its counters and its arrays: all that changes from token to token."""

    @abstractmethod
    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        """Take `held` of a cache like this one as its own."""

    @abstractmethod
    def after_one(self) -> tuple[int, ...]:
        """Its counters once one more token is in the room that it has."""

    @abstractmethod
    def describe(self, layer: int) -> CacheLayer:
        """What is really stored, read from the live arrays."""

    @abstractmethod
    def trim(self, tokens: int) -> None:
        """Forget the last `tokens` tokens, as if they had never come; `InvalidValue` where that cannot be done."""

    @abstractmethod
    def check(self) -> None:
        """Raise `InvalidValue` if counters and arrays do not fit together."""

    def arrays(self) -> list[mx.array]:
        """The stored arrays, for evaluation. Empty before the first append."""
        return [a for a in self.held()[1] if a is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored, slack included."""
        return sum(a.nbytes for a in self.arrays())

    def snapshot(self) -> Saved:
        """What it holds now, for `restore`; later appends do not change it."""
        marks, arrays = self.held()
        return Saved(self.kind, marks, _handles(arrays))

    def restore(self, saved: Saved) -> None:
        """Go back to `saved`, which stays as it is. A snapshot of another kind of cache is `InvalidValue`."""
        if saved.kind != self.kind:
            raise InvalidValue("snapshot", saved.kind, f"one of a cache of {self.kind}")
        self.hold(saved.marks, _handles(saved.arrays))

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows only, in this order. A row that is not there is `InvalidValue`."""
        marks, arrays = self.held()
        count = max((a.shape[0] for a in arrays if a is not None), default=1)
        for row in rows:
            if not 0 <= row < count:
                raise InvalidValue("row", row, f"0..{count - 1}")
        kept = mx.array(list(rows), mx.int32)
        self.hold(marks, tuple(None if a is None else a[kept] for a in arrays))

    def extract(self, row: int) -> Self:
        """One row as a cache of its own; this one stays as it is."""
        twin = self._twin()
        twin.filter([row])
        return twin

    def extend(self, others: Sequence[Self]) -> None:
        """Put the others' rows behind its own; they stay as they are.

        Rows of another kind, or of unequal length where they cannot lie side by side, are `InvalidValue`, and nothing
        is put.
        """
        saved = [cache.snapshot() for cache in (self, *others)]
        first = saved[0]
        for other in saved[1:]:
            if other.kind != first.kind or not (self.ragged or other.marks == first.marks):
                raise InvalidValue("row", (other.kind, *other.marks), f"like the first: {(first.kind, *first.marks)}")
        columns = zip(*(s.arrays for s in saved), strict=True)
        self.hold(max(s.marks for s in saved), tuple(_joined_rows(column, self.ragged) for column in columns))

    def merge(self, others: Sequence[Self]) -> Self:
        """A cache of this one's rows and the others', as `extend` would make of this one; this one stays as it is."""
        twin = self._twin()
        twin.extend(others)
        return twin

    def _twin(self) -> Self:
        """Another cache that holds the same."""
        twin = copy.copy(self)
        twin.restore(self.snapshot())
        return twin


def _joined_rows(column: tuple[mx.array | None, ...], ragged: bool) -> mx.array | None:
    present = [a for a in column if a is not None]
    if present and len(present) != len(column):
        raise InvalidValue("row", "one with and one without a state", "rows that have all begun, or none")
    if present and not ragged:  # as many tokens are in each, but the slack behind them follows how they came
        room = min(a.shape[2] for a in present)
        present = [a[:, :, :room] for a in present]
    return mx.concatenate(present, axis=0) if present else None


def _handles(arrays: tuple[mx.array | None, ...]) -> tuple[mx.array | None, ...]:
    """The same values under handles of their own: assigning into one leaves the other as it was."""
    return tuple(None if a is None else mx.stop_gradient(a) for a in arrays)


class KVView(ABC):
    """Keys and values as one forward sees them, the new ones included. `offset`: tokens before this forward's."""

    offset: Offset

    @abstractmethod
    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
        bias: mx.array | None = None,
        select: mx.array | None = None,
    ) -> mx.array:
        """Causal attention of `queries` [B, H, L, D] -> [B, H, L, D of the values].

        softcap bounds scores by cap * tanh(s / cap); sinks [H] are logits that take weight and give no value.
        bias, floats [L, S] or [B or 1, H or 1, L, S], is added to the scores; select, booleans of such a shape, says
        which of the keys that may be seen are. What a scheme cannot combine is `InvalidValue`.
        """

    @abstractmethod
    def dense(self) -> tuple[mx.array, mx.array]:
        """Keys and values [B, K, S, D] as they are attended; a quantised view raises `InvalidValue`."""

    @abstractmethod
    def over(self, keys: mx.array, values: mx.array) -> KVView:
        """The same tokens, seen as these are, by keys and values [B, H or 1, S, D] that were made of `dense()`."""


class LayerKV(LayerCache):
    """Keys and values of one layer."""

    @abstractmethod
    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Store `keys`, `values` [B, K, L, D] behind the present ones and return the view that attends them."""


def live_scheme(caches: Sequence[LayerCache]) -> str:
    """The scheme of all layers that keep keys and values, or "mixed" where they differ; "native" where none does."""
    names = {cache.describe(i).scheme for i, cache in enumerate(caches) if isinstance(cache, LayerKV)}
    if not names:
        return "native"
    return names.pop() if len(names) == 1 else "mixed"
