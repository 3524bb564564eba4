"""One life for every request, whatever method runs it: the same suite over the real method and two fakes.

Swapping them edits one entry of `METHODS`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, Event, Generation, Request, SamplingParams, errors, load
from engine.method import METHODS
from engine.method.base import Entry, Method, Outcome, Row, Task
from engine.sched.session import ENDS, Handle
from engine.types import CacheLayer

PROMPT = (5, 9, 2, 7)


@dataclass(eq=False)
class FakeRow(Row):
    task: Task
    chunk: int
    left: int = field(init=False)
    given: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.left = -(-(len(self.task.prompt) - 1) // self.chunk)

    @property
    def chunks_left(self) -> int:
        return self.left

    @property
    def next_tokens(self) -> int:
        return min(self.chunk, len(self.task.prompt) - 1)

    def describe(self) -> tuple[CacheLayer, ...]:
        return ()

    def kv_status(self) -> str:
        return "native"


class Scripted(Method):
    """Emits 1, 2, 3 ... for each row. A prompt that begins with 40 fails its prefill, with 41 its third token, with 42
    the whole step."""

    def __init__(
        self,
        decoder: object,
        kv: object,
        *,
        chunk: int,
        rows: str,
        compiled: object,
        normalised: bool,
        early: bool,
        prefixes: object,
    ) -> None:
        self.chunk, self.open_rows = chunk, set[FakeRow]()

    def open(self, task: Task) -> FakeRow:
        row = FakeRow(task, self.chunk)
        self.open_rows.add(row)
        return row

    def prefill(self, rows: Sequence[Row]) -> None:
        (row,) = rows
        assert isinstance(row, FakeRow)
        if row.task.prompt[0] == 40:
            raise ZeroDivisionError("prefill")
        row.left -= 1

    def step(self, rows: Sequence[Row]) -> list[Outcome]:
        ours = [row for row in rows if isinstance(row, FakeRow)]
        if any(row.task.prompt[0] == 42 for row in ours):
            raise ZeroDivisionError("step")
        return [self.advance(row) for row in ours]

    def advance(self, row: FakeRow) -> Outcome:
        row.given += 1
        if row.task.prompt[0] == 41 and row.given == 3:
            return ZeroDivisionError("row")
        return (Entry(token=row.given),)

    def close(self, row: Row) -> None:
        assert isinstance(row, FakeRow)
        assert not row.closed
        row.closed = True
        self.open_rows.remove(row)


class FinalOnly(Scripted):
    """Gives nothing until all of a row's tokens are there, and then all at once."""

    def advance(self, row: FakeRow) -> Outcome:
        row.given += 1
        if row.task.prompt[0] == 41 and row.given == 3:
            return ZeroDivisionError("row")
        if row.given < row.task.limit:
            return ()
        return tuple(Entry(token=1 + i) for i in range(row.task.limit))


FAKES = {"scripted": "test_lifecycle:Scripted", "final-only": "test_lifecycle:FinalOnly"}


@pytest.fixture(params=["decode", *FAKES])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in FAKES:
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        monkeypatch.setitem(METHODS, "decode", FAKES[request.param])
    return str(request.param)


@pytest.fixture
def open_engine(llama_folder: Path, method: str) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def open_one(**config: Any) -> Engine:
        engines.append(load(llama_folder, prefill_chunk=2, **config))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


def tokens(limit: int = 6, **fields: Any) -> Request:
    prompt = fields.pop("prompt", PROMPT)
    return Request(prompt=prompt, sampling=SamplingParams(max_tokens=limit, ignore_eos=True), **fields)


def ended(handle: Handle) -> str:
    deadline = time.monotonic() + 10
    while handle.state not in ENDS:
        assert time.monotonic() < deadline, handle.state
        time.sleep(0.001)
    return handle.state


def test_a_request_is_completed_once_with_all_its_tokens(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine()
    handle = engine.submit(tokens())
    events = list(handle.events())
    assert [e.finish_reason for e in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1].finish_reason == "length"
    assert len([t for e in events for t in e.tokens]) == 6
    assert ended(handle) == "completed"
    assert handle.result() == handle.result()


def test_cancelling_ends_it_in_every_phase(open_engine: Callable[..., Engine]) -> None:
    for turns in (0, 1, 2, 4):
        engine = open_engine(drive="manual")
        handle = engine.submit(tokens(limit=50))
        for _ in range(turns):
            engine.step()
        handle.cancel()
        handle.cancel()
        assert engine.step()
        assert handle.state == "cancelled"
        assert handle.result().finish_reason == "cancelled"
        assert not engine.step()


@pytest.mark.parametrize("prompt", [(40, 1, 2), (41, 1, 2), (42, 1, 2)])
def test_a_failure_ends_its_rows_with_the_cause_and_frees_them(
    open_engine: Callable[..., Engine], method: str, prompt: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(drive="manual")
    if method == "decode":
        monkeypatch.setattr(engine._scheduler.method, *_break(engine, prompt[0]))
    bad, good = engine.submit(tokens(prompt=prompt)), engine.submit(tokens())
    while engine.step():
        pass
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert bad.state == "failed"
    if prompt[0] == 42:
        assert good.state in ("failed", "completed")
    else:
        assert len(good.result().tokens) == 6
    if method != "decode":
        assert engine._scheduler.method.open_rows == set()
    assert len(engine.generate(PROMPT, SamplingParams(max_tokens=3, ignore_eos=True)).tokens) == 3


def _break(engine: Engine, kind: int) -> tuple[str, Callable[..., Any]]:
    """The real method with the script's failures put in."""
    real = engine._scheduler.method
    prefill, step, seen = real.prefill, real.step, itertools.count(1)

    def bad_prefill(rows: Sequence[Any]) -> None:
        if any(row.task.prompt[0] == 40 for row in rows):
            raise ZeroDivisionError("prefill")
        prefill(rows)

    def bad_step(rows: Sequence[Any]) -> list[Outcome]:
        if kind == 42 and any(row.task.prompt[0] == 42 for row in rows):
            raise ZeroDivisionError("step")
        outcomes = step(rows)
        for i, row in enumerate(rows):
            if row.task.prompt[0] == 41 and next(seen) == 3:
                outcomes[i] = ZeroDivisionError("row")
        return outcomes

    return ("prefill", bad_prefill) if kind == 40 else ("step", bad_step)


def test_closing_ends_everything_and_is_idempotent(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(batch=2)
    handles = [engine.submit(tokens(limit=100_000, delivery="collect")) for _ in range(4)]
    engine.close()
    engine.close()
    for handle in handles:
        with pytest.raises(errors.EngineClosed):
            handle.result()
        assert handle.state == "failed"
    with pytest.raises(errors.EngineClosed):
        engine.submit(tokens())


def test_a_slow_reader_parks_its_row_and_loses_nothing(open_engine: Callable[..., Engine], method: str) -> None:
    engine = open_engine(room=4)
    slow = engine.submit(tokens(limit=40))
    fast = engine.submit(tokens(limit=40, delivery="collect"))
    assert len(fast.result().tokens) == 40
    time.sleep(0.05)
    if method != "final-only":
        assert slow.state == "running"
        assert len(slow._events) <= 4
    read = [t for e in slow.events() for t in e.tokens]
    assert len(read) == 40
    assert read == list(slow.result().tokens)


def test_a_reader_who_never_comes_ends_the_request(open_engine: Callable[..., Engine], method: str) -> None:
    engine = open_engine(room=2, idle_s=0.05)
    handle = engine.submit(tokens(limit=40))
    if method == "final-only":  # all its tokens come with its end, so it never runs ahead of a reader
        assert ended(handle) == "completed"
        assert len(handle.result().tokens) == 40
        return
    assert ended(handle) == "failed"
    with pytest.raises(errors.ConsumerGone, match="idle_s"):
        handle.result()


def test_who_drives_an_engine_is_told_when_no_turn_is_left(open_engine: Callable[..., Engine], method: str) -> None:
    engine = open_engine(drive="manual", batch=1, room=2)
    unread, behind = engine.submit(tokens(limit=40)), engine.submit(tokens())
    if method == "final-only":  # nothing is held back, so nothing stalls
        assert len(behind.result().tokens) == 6
        return
    with pytest.raises(errors.Stalled, match="nobody reads"):
        behind.result()
    assert len([t for e in unread.events() for t in e.tokens]) == 40
    assert len(behind.result().tokens) == 6  # nothing was lost


def test_events_after_the_result_are_refused_by_what_let_them_go(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(drive="manual")
    handle = engine.submit(tokens())
    handle.result()
    for ask in (handle.ready, lambda: next(handle.events())):
        with pytest.raises(errors.InvalidValue, match="after result"):
            ask()


def test_a_deadline_ends_a_running_and_a_waiting_request(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(drive="manual", batch=1)
    late = [engine.submit(tokens(limit=1000, deadline_s=0.02)) for _ in range(2)]
    engine.step()
    time.sleep(0.03)
    while engine.step():
        pass
    for handle in late:
        with pytest.raises(errors.DeadlineExceeded):
            handle.result()


def test_a_full_queue_is_said_to_the_caller(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(drive="manual", batch=1, queue=2)
    for _ in range(2):
        engine.submit(tokens())
    with pytest.raises(errors.Overloaded, match="queue"):
        engine.submit(tokens())


def test_priority_begins_first(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(drive="manual", batch=1)
    low, high = engine.submit(tokens()), engine.submit(tokens(priority=5))
    engine.step()
    assert (low.state, high.state) == ("queued", "running")


def test_a_collecting_request_has_no_events(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine()
    handle = engine.submit(tokens(delivery="collect"))
    with pytest.raises(errors.InvalidValue, match="delivery"):
        next(handle.events())
    assert len(handle.result().tokens) == 6


def test_an_event_loop_reads_many_streams_at_once(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(room=3)

    async def read() -> list[int]:
        got: list[int] = []
        async for event in engine.astream(PROMPT, SamplingParams(max_tokens=20, ignore_eos=True)):
            got += event.tokens
        return got

    async def read_all() -> list[list[int]]:
        return await asyncio.wait_for(asyncio.gather(*(read() for _ in range(5))), 20)

    many = asyncio.run(read_all())
    assert [len(got) for got in many] == [20] * 5
    assert all(got == many[0] for got in many)


def test_leaving_a_stream_early_cancels_it(open_engine: Callable[..., Engine], method: str) -> None:
    engine = open_engine(drive="manual")
    handles: list[Handle] = []
    submit = engine.submit
    engine.submit = lambda request: handles.append(submit(request)) or handles[-1]  # type: ignore[func-returns-value, method-assign]
    stream = engine.stream(PROMPT, SamplingParams(max_tokens=300, ignore_eos=True))
    assert isinstance(next(iter(stream)), Event)
    stream.close()
    while engine.step():
        pass
    # The fake that gives everything at its end has nothing left to cancel when its first event comes.
    assert handles[0].state == ("completed" if method == "final-only" else "cancelled")
    result: Generation = engine.generate(PROMPT, SamplingParams(max_tokens=2, ignore_eos=True))
    assert len(result.tokens) == 2


def test_requests_from_many_threads_all_end(open_engine: Callable[..., Engine]) -> None:
    engine = open_engine(batch=3)
    results: list[int] = []

    def work() -> None:
        results.append(len(engine.generate(PROMPT, SamplingParams(max_tokens=7, ignore_eos=True)).tokens))

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [7] * 12
