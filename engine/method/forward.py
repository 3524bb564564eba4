"""The bare graph over one cache: forwards without sampling, requests or schedule, as a measurement wants them.

Letters: L tokens of a forward, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.kv.base import LayerCache
from engine.kv.plan import KVPlan
from engine.types import CacheLayer


@dataclass(frozen=True)
class GraphRun:
    """A decoder and the caches that its forwards append to."""

    decoder: Decoder
    kv: KVPlan
    caches: list[LayerCache]

    @classmethod
    def begin(cls, decoder: Decoder, kv: KVPlan) -> GraphRun:
        """Over empty caches of the plan."""
        return cls(decoder, kv, kv.fresh())

    def __call__(self, ids: mx.array) -> mx.array:
        """Token ids [1, L] -> unevaluated logits [1, L, V]; the caches are converted as in generation."""
        logits = self.decoder.project(self.decoder.forward_hidden(ids, self.caches))
        self.kv.convert(self.caches)
        return logits

    def describe(self) -> tuple[CacheLayer, ...]:
        """The live caches, read from the arrays that are there now."""
        return tuple(cache.describe(i) for i, cache in enumerate(self.caches))

    def kv_status(self) -> str:
        """Whether the asked scheme is really on, in the plan's words."""
        return self.kv.status(self.caches)
