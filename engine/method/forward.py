"""The bare graph over caches of its own: forwards without sampling, requests or schedule, as a measurement wants them.

Letters: L tokens of a forward, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
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
        self.convert()
        return logits

    def fill(self, token_ids: Sequence[int], chunk: int) -> None:
        """Append tokens in forwards of at most `chunk`, evaluated, and convert nothing."""
        for start in range(0, len(token_ids), chunk):
            self.decoder.forward_hidden(mx.array(list(token_ids[start : start + chunk]))[None], self.caches)
            mx.eval(self.arrays())

    def convert(self) -> None:
        """Carry out the plan on caches that have reached its start."""
        self.kv.convert(self.caches)

    def arrays(self) -> list[mx.array]:
        """What the caches hold, for evaluation."""
        return [array for cache in self.caches for array in cache.arrays()]

    def twin(self) -> GraphRun:
        """The same tokens under handles of their own: what is done to it leaves this one as it is."""
        caches = [copy.copy(cache) for cache in self.caches]
        for new, old in zip(caches, self.caches, strict=True):
            new.restore(old.snapshot())
        return GraphRun(self.decoder, self.kv, caches)

    def describe(self) -> tuple[CacheLayer, ...]:
        """The live caches, read from the arrays that are there now."""
        return tuple(cache.describe(i) for i, cache in enumerate(self.caches))

    def kv_status(self) -> str:
        """Whether the asked scheme is really on, in the plan's words."""
        return self.kv.status(self.caches)
