"""The engine's one thread: it creates and evaluates every array, and decides which work runs next.

Work is a queue of jobs in order of arrival; the first unfinished one runs, a unit at a time (a prefill chunk or a
decode step). Plain calls run between two units. In manual drive the thread that loaded the engine takes its place.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

import mlx.core as mx

from engine.errors import EngineClosed, WrongThread

T = TypeVar("T")
_OPEN: weakref.WeakSet[Loop] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loop in list(_OPEN):
        loop.close()


class Job(Protocol):
    """Work that the loop advances until it is over."""

    def advance(self) -> bool:
        """Run one unit; False when the job is over. A job handles its own failures: nothing may escape."""

    def abandon(self, cause: BaseException) -> None:
        """End the job with `cause`; the loop will not advance it again."""


class Loop:
    """Runs jobs and calls on one thread. `manual`: no thread is started; `step` and `call` run on the caller's."""

    def __init__(self, *, manual: bool) -> None:
        self.manual = manual
        self._owner = threading.get_ident()
        self._jobs: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        if not manual:
            self._thread = threading.Thread(target=self._run, name="mlx-frontier-engine", daemon=True)
            self._thread.start()
            # A program may end with an engine open: MLX aborts the process if this thread is then still at work.
            _OPEN.add(self)

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine's thread, between two units of work, and return what it returns."""
        if self.manual or threading.current_thread() is self._thread:
            self._check_owner()
            return function()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
                future.set_exception(error)

        with self._wake:
            self._check_open()
            self._calls.append(run)
            self._wake.notify_all()
        return future.result()

    def submit(self, job: Job) -> None:
        """Queue a job behind the present ones."""
        with self._wake:
            self._check_open()
            self._jobs.append(job)
            self._wake.notify_all()

    def step(self) -> bool:
        """Manual drive only: one unit of the first job. False when there was nothing to do."""
        if not self.manual:
            raise WrongThread('step() needs load(..., drive="manual"); this engine drives itself')
        self._check_owner()
        return self._unit()

    def close(self) -> None:
        """Stop after the present unit; unfinished jobs end with `EngineClosed`. Safe to call twice."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        while self._jobs:
            self._jobs.popleft().abandon(EngineClosed())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed

    def _check_owner(self) -> None:
        self._check_open()
        if self.manual and threading.get_ident() != self._owner:
            raise WrongThread('an engine with drive="manual" works on the thread that loaded it, and only there')

    def _unit(self) -> bool:
        with self._wake:
            job = self._jobs[0] if self._jobs else None
        if job is None:
            return False
        if not job.advance():
            with self._wake:
                self._jobs.popleft()
        return True

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._calls or self._jobs):
                    self._wake.wait()
                calls, self._calls = list(self._calls), deque()
                closed = self._closed
            for run in calls:
                run()
            if closed:
                # A compiled function that ran on this thread's streams makes MLX abort the process at exit if they
                # outlive the thread (seen in 6 of 8 exits on the Linux CPU).
                mx.clear_streams()
                return
            self._unit()
