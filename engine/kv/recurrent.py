"""Recurrent and convolution states: arrays of a fixed size that each forward replaces (mlx-lm's ArraysCache).

Letters: B rows, L tokens of one forward.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.base import LayerCache
from engine.kv.spec import CacheSpec
from engine.types import CacheLayer


class StateKV(LayerCache):
    """A state of `slots` arrays [B, ...], in the order that the graph gives them; each is None until it is written."""

    ragged = True

    def __init__(self, spec: CacheSpec) -> None:
        self.offset = 0
        self._slots: tuple[mx.array | None, ...] = (None,) * spec.slots
        self._lent: Callable[[], tuple[mx.array | None, ...]] | None = None

    @property
    def slots(self) -> tuple[mx.array | None, ...]:
        """The state now, wherever it lies."""
        return self._slots if self._lent is None else self._lent()

    @slots.setter
    def slots(self, slots: tuple[mx.array | None, ...]) -> None:
        self._slots, self._lent = slots, None

    def lend(self, read: Callable[[], tuple[mx.array | None, ...]]) -> None:
        """Let the state lie elsewhere, where `read` finds it, until it is set again."""
        self._slots, self._lent = (None,) * len(self._slots), read

    def append(self, length: int, *slots: mx.array | None) -> None:
        """Put the state after `length` more tokens in place of the present one."""
        if len(slots) != len(self.slots):
            raise InvalidValue("state", len(slots), f"{len(self.slots)} arrays, as the graph declared")
        self.offset, self.slots = self.offset + length, slots

    @property
    def kind(self) -> str:
        return f"state:{len(self.slots)}"

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        return (self.offset,), self.slots

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        (self.offset,), self.slots = marks, arrays

    def after_one(self) -> tuple[int, ...]:
        return (self.offset + 1,)

    def trim(self, tokens: int) -> None:
        if tokens:
            raise InvalidValue("trim", tokens, "0: a recurrent state cannot forget tokens; restore a snapshot")

    def check(self) -> None:
        rows = {a.shape[0] for a in self.slots if a is not None}
        if self.offset < 0 or len(rows) > 1 or (rows and not self.offset):
            raise InvalidValue("state", (self.offset, *sorted(rows)), "a state of one number of rows, and tokens in it")

    def describe(self, layer: int) -> CacheLayer:
        dtypes = {str(a.dtype).removeprefix("mlx.core.") for a in self.arrays()}
        return CacheLayer(
            layer=layer,
            scheme="native",
            layout=self.kind,
            offset=self.offset,
            dtype="+".join(sorted(dtypes)) or "empty",
            bits=None,
            value_bits=None,
            group_size=None,
            kv_bytes=self.nbytes,
        )
