"""A request's life, and the handle by which other threads follow it.

created -> preparing -> queued -> running -> settling -> exactly one end: completed, cancelled or failed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.core as mx

from engine.errors import Cancelled, InvalidValue, Stalled
from engine.method.base import Entry, Row, Task
from engine.method.text import TextStream
from engine.types import CacheLayer, Event, FinishReason, Generation, Plan, Request, Timing, TokenLogprob, Usage

State = Literal["created", "preparing", "queued", "running", "settling", "completed", "cancelled", "failed"]
IDLE_S = 0.001
ENDS = ("completed", "cancelled", "failed")
MOVES: dict[State, tuple[State, ...]] = {
    "created": ("preparing",),
    "preparing": ("queued", "failed"),
    "queued": ("running", "settling"),
    "running": ("settling",),
    "settling": ("completed", "cancelled", "failed"),
    "completed": (),
    "cancelled": (),
    "failed": (),
}


@dataclass(frozen=True)
class Prepared:
    """A request after planning: everything that its row needs. `text` is None for a model without a tokenizer.

    chunks: prefill chunks of its prompt; first_chunk: tokens of the first.
    """

    request: Request
    task: Task
    plan: Plan
    stop_ids: frozenset[int]
    text: TextStream | None
    chunks: int
    first_chunk: int


class Handle:
    """Follows one request. `events` and `aevents` have one consumer; `result` may be called by many.

    A stream holds at most `room` unread events: a consumer that falls behind stops its row until it has read on, and
    loses nothing. Nothing is held for a request that collects, or once `result` is waited for.
    """

    def __init__(
        self, id: int, *, drive: Callable[[], bool] | None, wake: Callable[[], None], room: int, collect: bool
    ) -> None:
        self.id = id
        self._drive, self._wake, self._room = drive, wake, room  # manual engines are driven by whoever waits
        self._collect, self._waited = collect, False
        self._news = threading.Condition()
        self._events: deque[Event] = deque()
        self._outcome: Generation | BaseException | None = None
        self._listeners: list[Callable[[], None]] = []
        self.state: State = "created"
        self.cancelled = False
        self.caches: Callable[[], tuple[CacheLayer, ...]] = tuple
        self.parked_s: float | None = None  # since when its consumer is behind

    # -- the consumer's side -------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask for an early end; the request finishes with reason "cancelled" and what it has."""
        self.cancelled = True
        self._wake()

    def events(self) -> Iterator[Event]:
        """The events until the one with a finish reason. Raises what ended the request, if something did."""
        self._only_streams()
        while True:
            while (event := self._take()) is None:
                if self._ended():
                    return
                if self._drive is not None:
                    self._turn()
                else:
                    with self._news:
                        self._news.wait_for(lambda: self._events or self._outcome is not None)
            yield event

    async def aevents(self) -> AsyncIterator[Event]:
        """`events` for an event loop: waiting for the next one blocks no thread of it."""
        self._only_streams()
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(news.set)

        with self._news:
            self._listeners.append(tell)
        try:
            while True:
                news.clear()
                while (event := self._take()) is not None:
                    yield event
                    news.clear()
                if self._ended():
                    return
                if self._drive is None:
                    await news.wait()
                elif not self._drive():
                    await asyncio.sleep(IDLE_S)  # other readers of this event loop may let their rows go on
        finally:
            with self._news:
                self._listeners.remove(tell)

    def ready(self) -> list[Event]:
        """The events that are there, without waiting or taking a turn: for who drives the engine himself. Raises what
        ended the request, once all are read."""
        self._only_streams()
        found = []
        while (event := self._take()) is not None:
            found.append(event)
        if not found:
            self._ended()
        return found

    def result(self) -> Generation:
        """Wait for the end and return the generation, or raise what ended it. What was not read is let go."""
        with self._news:
            self._waited, self.parked_s = True, None
            self._events.clear()
        self._wake()
        if self._drive is not None:
            while self._outcome is None:
                self._turn()
        with self._news:
            self._news.wait_for(lambda: self._outcome is not None)
        if isinstance(self._outcome, Generation):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def _only_streams(self) -> None:
        if self._collect:
            raise InvalidValue("delivery", "collect", "stream, for events; this request collects: read result()")
        if self._waited:
            raise InvalidValue("events", "asked for after result()", "asked for before it: what was not read is let go")

    def _turn(self) -> None:
        """Drive the engine on. Raises `Stalled` where no turn can bring this request nearer to its end."""
        assert self._drive is not None
        if not self._drive() and self._outcome is None and not self._events:
            raise Stalled(self.id)

    def _take(self) -> Event | None:
        """The next event, or None; lets a parked row go on."""
        with self._news:
            if not self._events:
                return None
            event = self._events.popleft()
            freed, self.parked_s = self.parked_s is not None, None
        if freed:
            self._wake()
        return event

    def _ended(self) -> bool:
        """Whether no event will come; raises what ended the request."""
        with self._news:
            if self._events or self._outcome is None:
                return False
            if isinstance(self._outcome, BaseException):
                raise self._outcome
            return True

    # -- the engine's side ---------------------------------------------------------------------------------------

    def move(self, state: State) -> None:
        """Go on to `state`; a step that no life has is a defect of the engine."""
        assert state in MOVES[self.state], f"{self.state} -> {state}"
        self.state = state

    def emit(self, event: Event) -> None:
        with self._news:
            if not (self._collect or self._waited):
                self._events.append(event)
                if len(self._events) >= self._room:
                    self.parked_s = time.perf_counter()
            self._tell()

    def finish(self, outcome: Generation | BaseException, state: State) -> None:
        """Set the one outcome."""
        with self._news:
            self.move(state)
            self._outcome = outcome
            self._tell()

    def _tell(self) -> None:
        self._news.notify_all()
        for listener in self._listeners:
            listener()


@dataclass(eq=False)
class Session:
    """What the scheduler keeps of one request: its row, what it has said, and when."""

    prepared: Prepared
    handle: Handle
    submitted_s: float = field(default_factory=time.perf_counter)
    row: Row | None = None
    served: int = 0  # the turn of its last prefill chunk
    started_s: float = 0.0
    first_s: float = 0.0

    def __post_init__(self) -> None:
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._text: list[str] = []
        self._live: list[str] = []
        self._taps: dict[str, list[Any]] = {name: [] for name in self.prepared.request.taps}

    @property
    def id(self) -> int:
        return self.handle.id

    @property
    def deadline_s(self) -> float | None:
        limit = self.prepared.request.deadline_s
        return None if limit is None else self.submitted_s + limit

    def begin(self, row: Row) -> None:
        self.handle.move("running")
        self.started_s = time.perf_counter()
        self.row = row
        self.handle.caches = row.describe

    def take(self, entries: tuple[Entry, ...]) -> FinishReason | None:
        """Tell the consumer what is new, and say whether that was the end."""
        for entry in entries:
            reason = self._take(entry)
            if reason is not None:
                return reason
        return None

    def _take(self, entry: Entry) -> FinishReason | None:
        prepared, token = self.prepared, entry.token
        if not self._tokens:
            self.first_s = time.perf_counter()
        self._tokens.append(token)
        if entry.logprob is not None:
            self._logprobs.append(entry.logprob)
        for name, array in (entry.taps or {}).items():
            self._taps[name].append(array)
        if entry.kv_live:
            self._live.append(entry.kv_live)
        reason: FinishReason | None = None
        text, stream = "", prepared.text
        sampling, forced = prepared.request.sampling, prepared.task.forced is not None
        if token in prepared.stop_ids and not sampling.ignore_eos and not forced:
            reason = "stop"
        elif stream is not None:
            text = stream.push(token)
            if stream.stopped:
                reason = "stop"
        if reason is None and len(self._tokens) >= prepared.task.limit:
            reason = "length"
        if reason is not None and stream is not None:
            text += stream.finish()
        self._text.append(text)
        self.handle.emit(Event((token,), text, (entry.logprob,) if entry.logprob else (), reason))
        return reason

    def complete(self, reason: FinishReason) -> None:
        """Settle with a result."""
        self.handle.move("settling")
        prepared, row = self.prepared, self.row
        if reason == "cancelled":
            rest = prepared.text.finish() if prepared.text is not None and self._tokens else ""
            self._text.append(rest)
            self.handle.emit(Event((), rest, (), reason))
        caches = row.describe() if row else ()
        taps = {name: mx.stack(rows) for name, rows in self._taps.items() if rows}
        mx.eval(taps)
        generation = Generation(
            tokens=tuple(self._tokens),
            text="".join(self._text),
            finish_reason=reason,
            logprobs=tuple(self._logprobs),
            usage=Usage(len(prepared.task.prompt), len(self._tokens), row.cached_tokens if row else 0),
            timing=self._timing(time.perf_counter()),
            plan=prepared.plan,
            kv_status=row.kv_status() if row else "native (start not reached)",
            caches=caches,
            taps=taps,
            kv_live=tuple(self._live),
        )
        self.handle.caches = lambda: caches
        self.handle.finish(generation, "cancelled" if reason == "cancelled" else "completed")

    def fail(self, cause: BaseException) -> None:
        """Settle with what ended it."""
        if self.handle.state in ("queued", "running"):
            self.handle.move("settling")
        self.handle.caches = tuple
        self.handle.finish(cause, "cancelled" if isinstance(cause, Cancelled) else "failed")

    def _timing(self, end_s: float) -> Timing:
        n = len(self._tokens)
        computed = len(self.prepared.task.prompt) - (self.row.cached_tokens if self.row else 0)
        prefill_s = max(self.first_s - self.started_s, 0.0)
        decode_s = end_s - self.first_s if n else 0.0
        return Timing(
            ttft_ms=max(self.first_s - self.submitted_s, 0.0) * 1e3,
            prefill_ms=prefill_s * 1e3,
            decode_ms=decode_s * 1e3,
            prefill_tok_s=computed / prefill_s if prefill_s else 0.0,
            decode_tok_s=(n - 1) / decode_s if n > 1 and decode_s else 0.0,
            peak_bytes=mx.get_peak_memory(),
        )
