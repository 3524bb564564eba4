"""The engine's one thread: it creates and evaluates every array.

It takes turns of its work (the scheduler's) while there are any, and plain calls run between two turns. In manual drive
the thread that loaded the engine takes its place.
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


class Work(Protocol):
    """What the thread is for."""

    def ready(self) -> bool:
        """Whether a turn would do something now."""

    def wait_s(self) -> float | None:
        """Seconds until something is due although nobody calls; None if nothing is."""

    def turn(self) -> bool:
        """Do the next thing; False if there was none. It handles its own failures: nothing may escape."""

    def abandon(self, cause: BaseException) -> None:
        """End everything with `cause`; no turn comes after it."""


class Loop:
    """Runs work and calls on one thread. `manual`: no thread is started; `step` and `call` run on the caller's."""

    def __init__(self, *, manual: bool) -> None:
        self.manual = manual
        self._owner = threading.get_ident()
        self._work: Work | None = None
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
        """Run `function` on the engine's thread, between two turns, and return what it returns."""
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

    def drive(self, work: Work) -> None:
        """Take turns of `work` from now on."""
        with self._wake:
            self._work = work
            self._wake.notify_all()

    def submit(self, enqueue: Callable[[], None]) -> None:
        """Hand something to the work, unless the loop is closed."""
        with self._wake:
            self._check_open()
            enqueue()
            self._wake.notify_all()

    def wake(self) -> None:
        """Look again whether there is work. From any thread."""
        with self._wake:
            self._wake.notify_all()

    def step(self) -> bool:
        """Manual drive only: one turn. False when there was nothing to do."""
        if not self.manual:
            raise WrongThread('step() needs load(..., drive="manual"); this engine drives itself')
        self._check_owner()
        return self._work is not None and self._work.turn()

    def close(self) -> None:
        """Stop after the present turn; unfinished work ends with `EngineClosed`. Safe to call twice."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        work, self._work = self._work, None
        if work is not None:
            work.abandon(EngineClosed())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed

    def _check_owner(self) -> None:
        self._check_open()
        if self.manual and threading.get_ident() != self._owner:
            raise WrongThread('an engine with drive="manual" works on the thread that loaded it, and only there')

    def _idle(self) -> bool:
        return not (self._closed or self._calls or (self._work is not None and self._work.ready()))

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._idle():
                    self._wake.wait(None if self._work is None else self._work.wait_s())
                calls, self._calls = list(self._calls), deque()
                closed = self._closed
            for run in calls:
                run()
            if closed:
                # A compiled function that ran on this thread's streams makes MLX abort the process at exit if they
                # outlive the thread (seen in 6 of 8 exits on the Linux CPU).
                mx.clear_streams()
                return
            if self._work is not None:
                self._work.turn()
