"""Plain decoding of one row: prefill in chunks, then one token a step, with one step of lookahead.

The conventions are mlx-lm's generate_step (generate.py): all but the last prompt token go through in chunks, the last
one alone; logprobs are taken in the logits' dtype; the next step is built before the current token is read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.kv.base import LayerCache, live_scheme
from engine.kv.plan import KVPlan
from engine.sample.keys import KeyChain
from engine.sample.logprobs import logprobs_of
from engine.sample.processors import Processors
from engine.sample.samplers import Sampler

# mlx-lm returns the allocator's cache this often; it changes peak memory, never bits.
CLEAR_EVERY = 256


@dataclass(frozen=True)
class Step:
    """One step in flight: the sampled token [1], its logprobs [V], and the logits [V] if they are tapped."""

    token: mx.array
    logprobs: mx.array
    logits: mx.array | None


@dataclass
class DecodeRow:
    """One request's decoding state. `prefill` until it returns False, then `step` once per token.

    `forced`: tokens fed instead of the sampled ones. `keep_logits`: steps carry their unprocessed logits.
    """

    decoder: Decoder
    kv: KVPlan
    prompt: tuple[int, ...]
    processors: Processors
    sampler: Sampler
    seed: int
    chunk: int
    limit: int
    forced: tuple[int, ...] | None = None
    keep_logits: bool = False
    caches: list[LayerCache] = field(init=False)

    def __post_init__(self) -> None:
        self.caches = self.kv.fresh()
        self.keys = KeyChain(self.seed)
        self.prefilled = 0
        self.emitted = 0
        self._history = mx.array([], dtype=mx.int32)
        self._ahead: Step | None = None

    def prefill(self) -> bool:
        """Run one chunk of the prompt (never its last token). False when there is none left."""
        left = len(self.prompt) - 1 - self.prefilled
        if left <= 0:
            return False
        ids = mx.array(self.prompt[self.prefilled : self.prefilled + min(self.chunk, left)])
        self.decoder.forward_hidden(ids[None], self.caches)
        self.kv.convert(self.caches)
        mx.eval([a for cache in self.caches for a in cache.arrays()])
        self._remember(ids)
        self.prefilled += ids.size
        mx.clear_cache()
        return True

    def step(self) -> Step:
        """The next token's step, evaluated; the one after it is already on its way."""
        if self._ahead is None:
            self._ahead = self._launch(mx.array(self.prompt[-1:]))
        current = self._ahead
        self.emitted += 1
        if self.emitted < self.limit:
            fed = current.token if self.forced is None else mx.array(self.forced[self.emitted - 1 : self.emitted])
            self._ahead = self._launch(fed)
        mx.eval(current.token, current.logprobs)
        if self.emitted % CLEAR_EVERY == 1:
            mx.clear_cache()
        return current

    def _launch(self, ids: mx.array) -> Step:
        """Build and dispatch the forward of `ids` [1] and the sampling of what follows."""
        hidden = self.decoder.forward_hidden(ids[None], self.caches)
        raw = self.decoder.project(hidden)[:, -1, :]  # [1, V]
        logits = raw
        if self.processors:
            self._remember(ids)
            logits = self.processors(self._history, raw)
        self.kv.convert(self.caches)
        logprobs = logprobs_of(logits)
        token = self.sampler(logprobs, self.keys)
        step = Step(token, logprobs.squeeze(0), raw.squeeze(0) if self.keep_logits else None)
        mx.async_eval(*(a for a in (step.token, step.logprobs, step.logits) if a is not None))
        return step

    def _remember(self, ids: mx.array) -> None:
        if self.processors:
            self._history = mx.concatenate([self._history, ids.astype(mx.int32)])


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
