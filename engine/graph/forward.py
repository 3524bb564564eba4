"""What the modules of one forward share, and how a spec becomes a module."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from engine.errors import UnknownField
from engine.graph import BUILDERS
from engine.kv.base import KVView, LayerKV
from engine.kv.batched import BatchedRing, BatchedState, Padding
from engine.kv.fixed import Fixed, FixedKV, FixedState
from engine.kv.masks import Masks
from engine.kv.padded import PaddedKV
from engine.kv.recurrent import StateKV
from engine.kv.rows import RowsKV, RowsState, Slot


class Forward:
    """One call of the decoder: token ids [B, L], the caches, the views that layers appended, masks made once.

    `embedded` [B, L, D] is the residual stream that entered the first layer. `projected`: keys and
    values that a layer gives to later ones. `extras`: what a stem prepares for layers.
    """

    def __init__(self, ids: mx.array, caches: Sequence[Slot | Fixed]) -> None:
        self.ids, self.caches = ids, caches
        self.views: dict[int, KVView] = {}
        self.masks = Masks()
        self.embedded = ids
        self.projected: tuple[mx.array, mx.array] | None = None
        self.extras: dict[str, mx.array] = {}

    def kv(self, cache: int) -> LayerKV | RowsKV | FixedKV | PaddedKV | BatchedRing:
        """A cache of keys and values."""
        kv = self.caches[cache]
        assert isinstance(kv, (LayerKV, RowsKV, FixedKV, PaddedKV, BatchedRing))
        return kv

    def lone_kv(self, cache: int) -> LayerKV:
        """The same for a module that has one position for all rows, so that no rows of unequal length come here."""
        kv = self.kv(cache)
        assert isinstance(kv, LayerKV)
        return kv

    def lone_state(self, cache: int) -> StateKV:
        """A recurrent state, for such a module."""
        state = self.state(cache)
        assert isinstance(state, StateKV)
        return state

    def state(self, cache: int) -> StateKV | RowsState | FixedState | BatchedState:
        """A recurrent state."""
        state = self.caches[cache]
        assert isinstance(state, (StateKV, RowsState, FixedState, BatchedState))
        return state

    def padding(self, cache: int) -> Padding | None:
        """Which of this forward's tokens count for a recurrent state; None where all do."""
        state = self.caches[cache]
        return state.padding(self.ids.shape[1], self.masks) if isinstance(state, BatchedState) else None


class Positionwise:
    """A mixer that gives each token what follows from its x alone: no cache, nothing else of a forward, no value read
    on the way."""


def build(spec: Any, *args: Any) -> Any:
    """The module of a spec, by the name of its type."""
    name = type(spec).__name__
    if name not in BUILDERS:
        raise UnknownField("spec", name, BUILDERS)
    module, symbol = BUILDERS[name].split(":")
    return getattr(importlib.import_module(module), symbol)(spec, *args)
