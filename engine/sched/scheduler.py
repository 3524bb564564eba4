"""The one executor: every request is a row of the batch that runs, and a batch of one is a batch.

A turn is three calls: `plan` (the policy, pure), `run` (the method: a prompt's chunk, then a step of all ready rows)
and `commit` (tokens to consumers, ends). All of it on the engine's thread; `submit` may be called from any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx

from engine.errors import ConsumerGone, DeadlineExceeded, InvalidValue, OutOfMemory, Overloaded
from engine.method.base import Method, Outcome
from engine.sched.policy import Active, Limits, Turn, Waiting, plan
from engine.sched.session import Session
from engine.types import FinishReason


@dataclass(frozen=True)
class TurnLog:
    """One turn as it ran, for a trace: what it did, when (seconds), which requests ended, what the caches of all rows
    held just before that, what was copied because rows joined or left, and how many tokens of prompts that began came
    out of kept prefixes."""

    turn: Turn
    start_s: float
    end_s: float
    ended: tuple[int, ...]
    kv_bytes: int
    copied_bytes: int
    cached_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """waiting: requests that may queue; idle_s: how long a consumer may stay behind."""

    waiting: int
    idle_s: float


def typed(error: Exception) -> Exception:
    """The error, or `OutOfMemory` for MLX's word that it could not allocate."""
    return OutOfMemory(str(error)) if isinstance(error, RuntimeError) and "allocate" in str(error) else error


@dataclass
class Scheduler:
    """`trace`, where given, receives every turn."""

    method: Method
    limits: Limits
    bounds: Bounds
    trace: Callable[[TurnLog], None] | None = None
    _waiting: dict[int, Session] = field(default_factory=dict)
    _active: dict[int, Session] = field(default_factory=dict)
    _turns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -- any thread ----------------------------------------------------------------------------------------------

    def submit(self, session: Session) -> None:
        """Queue a request. Raises `Overloaded` when too many wait, `InvalidValue` for one that can never fit."""
        allowed = self.limits.kv_bytes
        if allowed is not None and session.prepared.plan.kv_bytes > allowed:
            raise InvalidValue("request kv bytes", session.prepared.plan.kv_bytes, f"at most the budget of {allowed}")
        with self._lock:
            if len(self._waiting) >= self.bounds.waiting:
                raise Overloaded(self.bounds.waiting)
            session.handle.move("queued")
            self._waiting[session.id] = session

    def ready(self) -> bool:
        """Whether a turn would do something now."""
        with self._lock:
            waiting = list(self._waiting.values())
        active = list(self._active.values())
        if any(session.handle.parked_s is None for session in active) or any(
            s.handle.cancelled for s in (*active, *waiting)
        ):
            return True
        now = time.perf_counter()
        due = [at for session in (*active, *waiting) if (at := self._due(session)) is not None]
        return (bool(waiting) and self._plan().admit != ()) or any(at <= now for at in due)

    def wait_s(self) -> float | None:
        """Seconds until something is due although nobody calls; None if nothing is."""
        with self._lock:
            waiting = list(self._waiting.values())
        due = [at for session in (*self._active.values(), *waiting) if (at := self._due(session)) is not None]
        return max(min(due) - time.perf_counter(), 0.0) if due else None

    # -- the engine's thread -------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Plan, run, commit. False when there was nothing to do."""
        start_s = time.perf_counter()
        ended = self._expire(start_s)
        turn = self._plan()
        if turn == Turn():
            return bool(ended)
        copied = self.method.copied_bytes
        outcomes = self._run(turn)
        held = self._kv_bytes() if self.trace is not None else 0
        begun = [self._active[id].row for id in turn.admit]
        cached = sum(row.cached_tokens for row in begun if row is not None)
        ended += self._commit(outcomes)
        if self.trace is not None:
            copied = self.method.copied_bytes - copied
            end_s = time.perf_counter()
            self.trace(TurnLog(turn, start_s, end_s, tuple(ended), held, copied, cached))
        return True

    def _kv_bytes(self) -> int:
        rows = [s.row for s in self._active.values() if s.row is not None]
        return sum(layer.kv_bytes for row in rows for layer in row.describe())

    def abandon(self, cause: BaseException) -> None:
        """End everything with `cause`. From any thread: it leaves arrays alone."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        active, self._active = list(self._active.values()), {}
        for session in (*active, *waiting):
            session.fail(cause)
        self.method.forget()

    def _plan(self) -> Turn:
        with self._lock:
            waiting = [
                Waiting(
                    id=s.id,
                    chunks=s.prepared.chunks,
                    next_tokens=s.prepared.first_chunk,
                    priority=s.prepared.request.priority,
                    kv_bytes=s.prepared.plan.kv_bytes,
                )
                for s in self._waiting.values()
            ]
        active = []
        for s in self._active.values():
            assert s.row is not None
            parked = s.handle.parked_s is not None
            active.append(
                Active(
                    id=s.id,
                    chunks_left=s.row.chunks_left,
                    next_tokens=s.row.next_tokens,
                    served=s.served,
                    parked=parked,
                    kv_bytes=s.prepared.plan.kv_bytes,
                )
            )
        return plan(waiting, active, self.limits)

    def _run(self, turn: Turn) -> dict[int, Outcome | BaseException]:
        """What each row of the turn got; rows whose prompt went on got ()."""
        self._turns += 1
        outcomes: dict[int, Outcome | BaseException] = {}
        for id in turn.admit:
            with self._lock:
                session = self._waiting.pop(id)
            if not self._active:
                mx.reset_peak_memory()
            self._active[id] = session
            try:
                session.begin(self.method.open(session.prepared.task))
            except Exception as error:  # noqa: BLE001 - becomes the outcome of this request
                outcomes[id] = typed(error)
        # In their order; what one of them ended takes no part in the other.
        for do in (self._step, self._fill) if self.limits.staged else (self._fill, self._step):
            do(turn, outcomes)
        return outcomes

    def _fill(self, turn: Turn, outcomes: dict[int, Outcome | BaseException]) -> None:
        """A chunk of each prompt of the turn."""
        planned = [self._active[id] for id in turn.prefill if id not in outcomes]
        # A row that has just begun may have found all of its prompt, which the plan did not know.
        filling = [session for session in planned if session.row is not None and session.row.chunks_left]
        if filling:
            for session in filling:
                session.served = self._turns
            try:
                self.method.prefill([s.row for s in filling if s.row is not None])
            except Exception as error:  # noqa: BLE001 - becomes the outcome of every row of the forward
                outcomes.update((session.id, typed(error)) for session in filling)

    def _step(self, turn: Turn, outcomes: dict[int, Outcome | BaseException]) -> None:
        """A step of each row of the turn that has its prompt."""
        stepping = [self._active[id] for id in turn.decode if id not in outcomes]
        if stepping:
            try:
                results = self.method.step([s.row for s in stepping if s.row is not None])
            except Exception as error:  # noqa: BLE001 - becomes the outcome of every row of the step
                results = [typed(error)] * len(stepping)
            outcomes.update(zip((s.id for s in stepping), results, strict=True))

    def _commit(self, outcomes: dict[int, Outcome | BaseException]) -> list[int]:
        """Hand out what is new; the requests that ended."""
        ended = []
        for id, outcome in outcomes.items():
            session = self._active[id]
            end: FinishReason | BaseException | None
            end = outcome if isinstance(outcome, BaseException) else session.take(outcome)
            if end is not None:
                self._end(session, end)
                ended.append(id)
        return ended

    def _expire(self, now: float) -> list[int]:
        """End what was cancelled, is past its deadline, or whose consumer is gone."""
        with self._lock:
            sessions = [*self._active.values(), *self._waiting.values()]
        ended = []
        for session in sessions:
            end: FinishReason | BaseException | None = None
            due = self._due(session)
            if session.handle.cancelled:
                end = "cancelled"
            elif due is not None and due <= now:
                late = session.deadline_s is not None and session.deadline_s <= now
                end = (
                    DeadlineExceeded(session.prepared.request.deadline_s) if late else ConsumerGone(self.bounds.idle_s)
                )
            if end is not None:
                with self._lock:
                    self._waiting.pop(session.id, None)
                self._end(session, end)
                ended.append(session.id)
        return ended

    def _due(self, session: Session) -> float | None:
        """When the request ends although nothing is wrong with it."""
        parked_s = session.handle.parked_s
        idle = None if parked_s is None else parked_s + self.bounds.idle_s
        return min((at for at in (session.deadline_s, idle) if at is not None), default=None)

    def _end(self, session: Session, end: FinishReason | BaseException) -> None:
        """The one place where a request ends: its outcome, then its memory."""
        self._active.pop(session.id, None)
        if isinstance(end, BaseException):
            session.fail(end)
        else:
            session.complete(end)
        if session.row is not None:
            self.method.close(session.row)
            session.row = None
