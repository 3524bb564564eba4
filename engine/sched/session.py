"""A request's life on the engine's thread, and the handle by which other threads follow it.

queued -> prefilling -> decoding -> exactly one end: a result, a failure or a cancellation.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import mlx.core as mx

from engine.kv.base import LayerCache
from engine.method.decode import DecodeRow, Step
from engine.method.text import TextStream
from engine.sample.logprobs import top
from engine.types import CacheLayer, Event, FinishReason, Generation, Plan, Request, Timing, TokenLogprob, Usage


def describe(caches: Sequence[LayerCache]) -> tuple[CacheLayer, ...]:
    """Every layer's live cache."""
    return tuple(cache.describe(i) for i, cache in enumerate(caches))


@dataclass(frozen=True)
class Prepared:
    """A request after planning: everything that its row needs. `text` is None for a model without a tokenizer."""

    request: Request
    prompt: tuple[int, ...]
    plan: Plan
    stop_ids: frozenset[int]
    make_row: Callable[[], DecodeRow]
    text: TextStream | None


class Handle:
    """Follows one request. `events` has one consumer; `result` may be called by many."""

    def __init__(self, drive: Callable[[], bool] | None) -> None:
        self._drive = drive  # manual engines are driven by whoever waits
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self._done = threading.Event()
        self._outcome: Generation | BaseException | None = None
        self._drained = False  # the last event has been handed out
        self.cancelled = False
        self.caches: Sequence[LayerCache] = ()

    def cancel(self) -> None:
        """Ask for an early end; the request finishes with reason "cancelled" and what it has."""
        self.cancelled = True

    def events(self) -> Iterator[Event]:
        """The events until the one with a finish reason. Raises what ended the request, if something did."""
        while not self._drained and not (self._done.is_set() and self._events.empty()):
            if self._drive is not None:
                while self._events.empty() and not self._done.is_set():
                    self._drive()
            event = self._events.get()
            # Noted here, not read from `_done`: the engine thread puts the last event before it sets that.
            self._drained = isinstance(event, BaseException) or event.finish_reason is not None
            if isinstance(event, BaseException):
                raise event
            yield event

    def result(self) -> Generation:
        """Wait for the end and return the generation, or raise what ended it."""
        if self._drive is not None:
            while not self._done.is_set():
                self._drive()
        self._done.wait()
        if isinstance(self._outcome, Generation):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def emit(self, event: Event) -> None:
        self._events.put(event)

    def finish(self, outcome: Generation | BaseException) -> None:
        """Set the one outcome; later ones are ignored."""
        if not self._done.is_set():
            self._outcome = outcome
            if isinstance(outcome, BaseException):
                self._events.put(outcome)
            self._done.set()


@dataclass
class Session:
    """The job that carries one request through prefill and decoding."""

    prepared: Prepared
    handle: Handle
    submitted_s: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._row: DecodeRow | None = None
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._text: list[str] = []
        self._taps: dict[str, list[mx.array]] = {name: [] for name in self.prepared.request.taps}
        self._started_s = self._first_s = 0.0

    def advance(self) -> bool:
        """One chunk or one token. A failure ends this request alone and is raised where its result is read."""
        try:
            return self._advance()
        except Exception as error:  # noqa: BLE001 - becomes the outcome of this request
            self.abandon(error)
            return False

    def abandon(self, cause: BaseException) -> None:
        self._row = None
        self.handle.caches = ()
        self.handle.finish(cause)

    def _advance(self) -> bool:
        if self.handle.cancelled:
            self._finish("cancelled")
            return False
        if self._row is None:
            mx.reset_peak_memory()
            self._started_s = time.perf_counter()
            self._row = self.prepared.make_row()
            self.handle.caches = self._row.caches
        if self._row.prefill():
            return True
        reason = self._commit(self._row.step())
        if reason is None:
            return True
        self._finish(reason)
        return False

    def _commit(self, step: Step) -> FinishReason | None:
        """Read one token back, tell the consumer, and say whether it was the last."""
        request, row = self.prepared.request, self._row
        assert row is not None
        index = len(self._tokens)
        token = cast(int, step.token.item()) if request.forced_tokens is None else request.forced_tokens[index]
        if index == 0:
            self._first_s = time.perf_counter()
        self._tokens.append(token)
        logprob = self._logprob(step, token)
        self._keep_taps(step)
        reason: FinishReason | None = None
        text = ""
        stop_token = token in self.prepared.stop_ids and not request.sampling.ignore_eos
        if stop_token and request.forced_tokens is None:
            reason = "stop"
        elif self.prepared.text is not None:
            text = self.prepared.text.push(token)
            if self.prepared.text.stopped:
                reason = "stop"
        if reason is None and row.emitted >= row.limit:
            reason = "length"
        if reason is not None and self.prepared.text is not None:
            text += self.prepared.text.finish()
        self._text.append(text)
        self.handle.emit(Event((token,), text, (logprob,) if logprob else (), reason))
        return reason

    def _logprob(self, step: Step, token: int) -> TokenLogprob | None:
        k = self.prepared.request.sampling.top_logprobs
        if k is None:
            return None
        entry = TokenLogprob(token, cast(float, step.logprobs[token].item()), top(step.logprobs, k))
        self._logprobs.append(entry)
        return entry

    def _keep_taps(self, step: Step) -> None:
        for name, rows in self._taps.items():
            array = step.logits if name == "logits" else step.logprobs
            assert array is not None
            rows.append(array)

    def _finish(self, reason: FinishReason) -> None:
        end_s = time.perf_counter()
        prepared, row = self.prepared, self._row
        if reason == "cancelled":
            rest = prepared.text.finish() if prepared.text is not None and self._tokens else ""
            self._text.append(rest)
            self.handle.emit(Event((), rest, (), reason))
        caches = row.caches if row else []
        generation = Generation(
            tokens=tuple(self._tokens),
            text="".join(self._text),
            finish_reason=reason,
            logprobs=tuple(self._logprobs),
            usage=Usage(len(prepared.prompt), len(self._tokens)),
            timing=self._timing(end_s),
            plan=prepared.plan,
            kv_status=row.kv.status(caches) if row else "native (start not reached)",
            caches=describe(caches),
            taps=self._stacked(),
        )
        self.handle.finish(generation)

    def _stacked(self) -> dict[str, mx.array]:
        stacked = {name: mx.stack(rows) for name, rows in self._taps.items() if rows}
        mx.eval(stacked)
        return stacked

    def _timing(self, end_s: float) -> Timing:
        n = len(self._tokens)
        prefill_s = max(self._first_s - self._started_s, 0.0)
        decode_s = end_s - self._first_s if n else 0.0
        return Timing(
            ttft_ms=max(self._first_s - self.submitted_s, 0.0) * 1e3,
            prefill_ms=prefill_s * 1e3,
            decode_ms=decode_s * 1e3,
            prefill_tok_s=len(self.prepared.prompt) / prefill_s if prefill_s else 0.0,
            decode_tok_s=(n - 1) / decode_s if n > 1 and decode_s else 0.0,
            peak_bytes=mx.get_peak_memory(),
        )
