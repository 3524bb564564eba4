"""The bare graph over caches of its own: forwards without sampling, requests or schedule, as teacher forcing and
measurements want them.

Letters: L tokens of a forward, V vocabulary.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.kv.base import LayerCache, live_scheme
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


@dataclass(frozen=True)
class Forced:
    """A teacher-forced run: logits [L, V], per position the scheme attended, residual streams if asked, the caches."""

    logits: mx.array
    kv_live: tuple[str, ...]
    layers: dict[int, mx.array]
    caches: list[LayerCache]


def forced_bounds(length: int, *, chunk: int, head: int, tail: int) -> tuple[int, ...]:
    """Where the forwards of a teacher-forced run begin and end: `head` tokens, chunks, then `tail` single tokens."""
    bounds = [0, head] if head else [0]
    while bounds[-1] < length - tail:
        bounds.append(min(bounds[-1] + chunk, length - tail))
    return (*bounds, *range(bounds[-1] + 1, length + 1))


def teacher_force(
    decoder: Decoder, kv: KVPlan, ids: tuple[int, ...], bounds: tuple[int, ...], *, layers: bool
) -> Forced:
    """Logits after every token of `ids` over fresh caches, one forward between neighbouring bounds."""
    caches = kv.fresh()
    rows: list[mx.array] = []
    live: list[str] = []
    residuals: dict[int, list[mx.array]] = {}
    for start, end in itertools.pairwise(bounds):
        live += [live_scheme(caches)] * (end - start)
        taps: dict[int, mx.array] | None = {} if layers else None
        hidden = decoder.forward_hidden(mx.array(ids[start:end])[None], caches, taps)
        rows.append(decoder.project(hidden)[0])  # [end - start, V]
        for i, tap in (taps or {}).items():
            residuals.setdefault(i, []).append(tap[0])
        kv.convert(caches)
        mx.eval(rows[-1], [a for cache in caches for a in cache.arrays()], [r[-1] for r in residuals.values()])
    joined = {i: mx.concatenate(parts) for i, parts in residuals.items()}
    logits = mx.concatenate(rows)
    mx.eval(logits, joined)
    return Forced(logits, tuple(live), joined, caches)
