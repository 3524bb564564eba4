"""The contract of a KV scheme: one layer's memory, and how a query attends it.

Letters: B rows, H query heads, K key/value heads, L query length, S keys so far, D head dimension.
A graph calls `append` once and `attend` on the view it returns; it never asks which scheme it holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import mlx.core as mx

from engine.kv.masks import Masks
from engine.types import CacheLayer


class KVView(ABC):
    """Keys and values as one forward sees them, the new ones included. `offset`: tokens before this forward's."""

    offset: int

    @abstractmethod
    def attend(
        self,
        queries: mx.array,
        scale: float,
        masks: Masks,
        *,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Causal attention of `queries` [B, H, L, D] -> [B, H, L, D of the values].

        softcap bounds scores by cap * tanh(s / cap); sinks [H] are logits that take weight and give no value.
        """

    @abstractmethod
    def dense(self) -> tuple[mx.array, mx.array]:
        """Keys and values [B, K, S, D] as they are attended; a quantised view raises `InvalidValue`."""


class LayerKV(ABC):
    """One layer's cache. `offset` tokens have been appended."""

    offset: int

    @abstractmethod
    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Store `keys`, `values` [B, K, L, D] behind the present ones and return the view that attends them."""

    @abstractmethod
    def arrays(self) -> list[mx.array]:
        """The stored arrays, for evaluation. Empty before the first append."""

    @abstractmethod
    def describe(self, layer: int) -> CacheLayer:
        """What is really stored, read from the live arrays."""


def scheme_name(bits: int | None, group_size: int | None) -> str:
    """The name by which reports and `kv_live` call a layer's scheme."""
    return "native" if bits is None else f"affine{bits}:g{group_size}"


def live_scheme(caches: list[LayerKV]) -> str:
    """The scheme of all layers, or "mixed" where they differ."""
    names = {cache.describe(i).scheme for i, cache in enumerate(caches)}
    return names.pop() if len(names) == 1 else "mixed"
