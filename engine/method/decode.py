"""Plain decoding of rows: prefill in chunks, then one token a step, with one step of lookahead.

The conventions of a row are mlx-lm's generate_step (generate.py): all but the last prompt token go through in chunks,
the last one alone; logprobs are taken in the logits' dtype; the next step is built before the current token is read.
Which rows share a forward, and how they lie in it, say lanes (engine.method.lanes): rows that have begun share one, and
prompts that go on in the same turn where they may.

Letters: B rows of a step, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from engine.errors import BadLogits
from engine.graph.compiled import CompiledStep
from engine.graph.decoder import Decoder
from engine.graph.rows import unfit_for_rows
from engine.kv.base import LayerCache, live_scheme
from engine.kv.plan import KVPlan
from engine.method.base import Entry, Method, Outcome, Row, Task
from engine.method.lanes import Batched, Lanes, Together
from engine.sample.argmax import normalised_argmax
from engine.sample.keys import KeyChain
from engine.sample.logprobs import logprobs_of, top
from engine.store.prefix import PrefixStore, Visit
from engine.types import CacheLayer, TokenLogprob

# mlx-lm returns the allocator's cache this often; it changes peak memory, never bits.
CLEAR_EVERY = 256


@dataclass(eq=False)
class Flight:
    """A step that was dispatched: sampled tokens [B], their logprobs [B], and what rows asked for beside them.

    wide: row -> logprobs float32 [V]; taps: row -> its arrays [V]; live: row with taps -> the scheme that it attended;
    failures: row -> what its sampling raised.
    Read from its evaluated arrays only: a new operation here would queue behind the next step.
    """

    tokens: mx.array
    chosen: mx.array
    wide: dict[int, mx.array]
    taps: dict[int, dict[str, mx.array]]
    live: dict[int, str]
    failures: dict[int, Exception]
    read: tuple[list[int], list[float]] | None = None

    def arrays(self) -> list[mx.array]:
        kept = [array for taps in self.taps.values() for array in taps.values()]
        return [self.tokens, self.chosen, *self.wide.values(), *kept]

    def entry(self, b: int, row: DecodeRow) -> Outcome:
        """What row b of the step got: one token, or its failure."""
        if self.read is None:
            mx.eval(self.arrays())
            self.read = self.tokens.tolist(), self.chosen.tolist()  # type: ignore[assignment]
            assert self.read is not None
        if b in self.failures:
            return self.failures[b]
        token, logprob = self.read[0][b], self.read[1][b]
        if logprob != logprob:
            return BadLogits(row.emitted)
        if row.task.forced is not None:
            token = row.task.forced[row.emitted]
        best = None
        if row.task.top_logprobs is not None:
            wide = np.array(self.wide[b])
            best = TokenLogprob(token, float(wide[token]), top(wide, row.task.top_logprobs))
        return (Entry(token=token, logprob=best, taps=self.taps.get(b), kv_live=self.live.get(b, "")),)


@dataclass(eq=False)
class DecodeRow(Row):
    """One request's decoding state. launched, emitted: tokens whose step was dispatched, and read."""

    task: Task
    kv: KVPlan
    chunk: int
    caches: list[LayerCache] = field(init=False)
    keys: KeyChain = field(init=False)
    prefilled: int = 0
    launched: int = 0
    emitted: int = 0
    ahead: tuple[Flight, int] | None = None
    visit: Visit | None = None

    def __post_init__(self) -> None:
        self.caches, self.keys = self.kv.fresh(), KeyChain(self.task.seed)
        self.history = mx.array([], dtype=mx.int32)

    @property
    def chunks_left(self) -> int:
        return -(-(len(self.task.prompt) - 1 - self.prefilled) // self.chunk)

    @property
    def next_tokens(self) -> int:
        return min(self.chunk, len(self.task.prompt) - 1 - self.prefilled)

    def resume(self, visit: Visit) -> None:
        """Go on from what was found of the prompt, and keep what comes."""
        self.visit = visit
        if visit.caches is not None:
            self.caches, self.prefilled, self.cached_tokens = visit.caches, visit.tokens, visit.tokens
            self.remember(mx.array(self.task.prompt[: visit.tokens]))

    @property
    def needs_logprobs(self) -> bool:
        """Whether its step reads more log-probabilities than that of a greedy token."""
        task = self.task
        return not task.sampler.greedy or task.top_logprobs is not None or bool(task.taps)

    def describe(self) -> tuple[CacheLayer, ...]:
        return tuple(cache.describe(i) for i, cache in enumerate(self.caches))

    def kv_status(self) -> str:
        return self.kv.status(self.caches)

    def fed(self) -> mx.array:
        """The ids [1] of its next forward."""
        if self.ahead is None:
            return mx.array(self.task.prompt[-1:])
        if self.task.forced is not None:
            return mx.array(self.task.forced[self.launched - 1 : self.launched])
        flight, b = self.ahead
        return flight.tokens if flight.tokens.shape[0] == 1 else flight.tokens[b : b + 1]

    def remember(self, ids: mx.array) -> None:
        if self.task.processors:
            self.history = mx.concatenate([self.history, ids.astype(mx.int32)])


class Decode(Method):
    """Rows over one decoder. chunk: prompt tokens a prefill forward; rows: how they run (engine.sched.modes); compiled:
    the step of rows that have begun, else their layers run one by one; normalised:
    tokens of greedy rows in one pass over the logits (engine.sample.argmax); early: layers of a step start as they are
    built; prefixes: where prompts look for what is
    kept of them, and keep what they compute."""

    def __init__(
        self,
        decoder: Decoder,
        kv: KVPlan,
        *,
        chunk: int,
        rows: str,
        compiled: CompiledStep | None = None,
        normalised: bool = False,
        early: bool = False,
        prefixes: PrefixStore | None = None,
    ) -> None:
        self.prefixes = prefixes
        self.decoder, self.kv, self.chunk, self.compiled = decoder, kv, chunk, compiled
        self.normalised, self.early, self.together = normalised, early, rows != "one by one"
        self._rows = rows
        self.lanes = self._empty()
        self.joint, self.staged = self.lanes.joint, self.lanes.staged
        self._steps = 0

    def _empty(self) -> Lanes[DecodeRow]:
        if self._rows in ("batched", "alone or batched"):
            return Batched(alone=self._rows == "alone or batched")
        joint = not unfit_for_rows(self.decoder.spec)
        return Together(self.kv, buffers=self._rows == "padded", joint=joint)

    def forget(self) -> None:
        self.lanes = self._empty()

    def open(self, task: Task) -> DecodeRow:
        row = DecodeRow(task, self.kv, self.chunk)
        if self.prefixes is not None:
            row.resume(self.prefixes.enter(task.prompt))
        self.lanes.enter(row)
        return row

    def prefill(self, rows: Sequence[Row]) -> None:
        """Run one chunk of each prompt (never its last token); the shorter ones are padded behind."""
        ours = self.lanes.filling([row for row in rows if isinstance(row, DecodeRow)])
        lengths = tuple(row.next_tokens for row in ours)
        parts = [row.task.prompt[row.prefilled : row.prefilled + n] for row, n in zip(ours, lengths, strict=True)]
        slots = self.lanes.fill(ours, lengths)
        self.decoder.forward_hidden(mx.array([(*ids, *[0] * (max(lengths) - len(ids))) for ids in parts]), slots)
        for row in ours:
            self.kv.convert(row.caches)
        mx.eval(self.lanes.filled(lengths))
        for row, ids in zip(ours, parts, strict=True):
            row.remember(mx.array(ids))
            row.prefilled += len(ids)
            if row.visit is not None:
                row.visit.keep(ids, row.caches)
        mx.clear_cache()
        self.copied_bytes = self.lanes.copied_bytes

    def step(self, rows: Sequence[Row]) -> list[Outcome]:
        """One token of each row; the step behind it is on its way before this one is read."""
        ours = [row for row in rows if isinstance(row, DecodeRow)]
        fresh = [row for row in ours if row.ahead is None]
        for group in self.lanes.starting(fresh):
            self._launch(group)
        current = [row.ahead for row in ours]
        # mlx-lm's batch has the step behind a row's last token on its way when that is read.
        for group in self.lanes.running([row for row in ours if row.launched < row.task.limit + self.staged]):
            self._launch(group)
        outcomes: list[Outcome] = []
        for row, ahead in zip(ours, current, strict=True):
            assert ahead is not None
            outcomes.append(ahead[0].entry(ahead[1], row))
            row.emitted += 1
        self.copied_bytes = self.lanes.copied_bytes
        self._steps += 1
        if self._steps % CLEAR_EVERY == 1:
            mx.clear_cache()
        return outcomes

    def close(self, row: Row) -> None:
        assert isinstance(row, DecodeRow)
        self.lanes.leave(row)
        if row.visit is not None:
            row.visit.leave(whole=not row.chunks_left)
        row.caches, row.ahead, row.visit = [], None, None

    def _launch(self, rows: list[DecodeRow]) -> None:
        """Build and dispatch the forward of the rows' next ids and the sampling of what follows."""
        ids = self._ids(rows)  # [B]
        live = {b: live_scheme(row.caches) for b, row in enumerate(rows) if row.task.taps}
        raw = self._forward(rows, ids)  # [B, V]
        logits, failures = raw, {}
        if any(row.task.processors for row in rows):
            parts = [raw[b : b + 1] for b in range(len(rows))]
            for b, row in enumerate(rows):
                if row.task.processors:
                    row.remember(ids[b : b + 1])
                    try:
                        parts[b] = row.task.processors(row.history, parts[b])
                    except Exception as error:  # noqa: BLE001 - the end of this row alone
                        failures[b] = error
            logits = mx.concatenate(parts)
        for row in rows:
            self.kv.convert(row.caches)
        if self.normalised and not any(row.needs_logprobs for row in rows):
            flight = Flight(*normalised_argmax(logits), {}, {}, live, failures)
        else:
            flight = self._drawn(rows, raw, logits, live, failures)
        for b, row in enumerate(rows):
            row.ahead = flight, b
            row.launched += 1
        mx.async_eval(*flight.arrays())

    def _drawn(
        self,
        rows: list[DecodeRow],
        raw: mx.array,
        logits: mx.array,
        live: dict[int, str],
        failures: dict[int, Exception],
    ) -> Flight:
        """Logits [B, V], before and after their processors, to tokens and whatever rows asked for beside them."""
        logprobs = logprobs_of(logits)
        tokens = self._sampled(rows, logprobs, failures)
        chosen = mx.take_along_axis(logprobs, tokens[:, None], axis=-1).squeeze(-1)
        flight = Flight(tokens, chosen, {}, {}, live, failures)
        for b, row in enumerate(rows):
            if row.task.top_logprobs is not None:
                flight.wide[b] = logprobs[b].astype(mx.float32)
            if row.task.taps:
                every = {"logits": raw, "logprobs": logprobs}
                flight.taps[b] = {name: every[name][b] for name in row.task.taps}
        return flight

    def _ids(self, rows: list[DecodeRow]) -> mx.array:
        """The ids [B] of the next forward; those of an unchanged group are the last step's tokens as they are."""
        aheads = [row.ahead for row in rows]
        first = aheads[0]
        if first is not None and first[0].tokens.shape[0] == len(rows):
            same = all(ahead is not None and ahead == (first[0], b) for b, ahead in enumerate(aheads))
            if same and all(row.task.forced is None for row in rows):
                return first[0].tokens
        return rows[0].fed() if len(rows) == 1 else mx.concatenate([row.fed() for row in rows])

    def _forward(self, rows: list[DecodeRow], ids: mx.array) -> mx.array:
        """Ids [B] -> logits [B, V]."""
        if len(rows) > 1 and not self.together:
            return mx.concatenate([self._forward([row], ids[b : b + 1]) for b, row in enumerate(rows)])
        slots = self.lanes.slots(rows)
        if self.compiled is not None and all(row.ahead is not None for row in rows):
            # Not the first cache's: a layer without attention has one in some models, and nothing comes into it.
            logits = self.compiled(ids, slots, [max(cache.offset for cache in row.caches) for row in rows])
            if logits is not None:
                return logits
        hidden = self.decoder.forward_hidden(ids[:, None], slots, early=self.early)
        return self.decoder.project(hidden)[:, -1, :]

    @staticmethod
    def _sampled(rows: list[DecodeRow], logprobs: mx.array, failures: dict[int, Exception]) -> mx.array:
        """Logprobs [B, V] -> tokens [B]. Greedy rows are one operation, and never wait for a neighbour's sort."""
        drawing = [b for b, row in enumerate(rows) if not row.task.sampler.greedy and b not in failures]
        if len(rows) == 1 and drawing:
            return rows[0].task.sampler(logprobs, rows[0].keys)
        tokens = mx.argmax(logprobs, axis=-1)
        if not drawing:
            return tokens
        parts = [tokens[b : b + 1] for b in range(len(rows))]
        for b in drawing:
            try:
                parts[b] = rows[b].task.sampler(logprobs[b : b + 1], rows[b].keys)
            except Exception as error:  # noqa: BLE001 - the end of this row alone
                failures[b] = error
        return mx.concatenate([part.astype(mx.uint32) for part in parts])
