"""The engine's rows against the clock: driven by the one who measures, as mlx-lm's generator is, or driving itself
with a reader for each row, as in a server."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from engine import Engine, Request, SamplingParams
from oracles.batch_timing import Batch, Stamp

FOREVER_S = 600.0


class EngineBatch(Batch):
    """Rows of a loaded engine. Everything is read as it comes, as a server would: the readers' work is in the times."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._manual = engine, engine.config.drive == "manual"
        self._news: queue.SimpleQueue[Stamp | BaseException] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self.handles: list[Any] = []

    def add(self, prompt: tuple[int, ...], limit: int) -> int:
        row = len(self.handles)
        sampling = SamplingParams(max_tokens=limit, ignore_eos=True)
        self.handles.append(self._engine.submit(Request(prompt=prompt, sampling=sampling)))
        if self._manual:
            return row
        self._readers.append(threading.Thread(target=self._read, args=(row, self.handles[row]), daemon=True))
        self._readers[row].start()
        return row

    def tokens(self, until_s: float) -> Sequence[Stamp]:
        return self._turn() if self._manual else self._awaited(until_s)

    def _turn(self) -> Sequence[Stamp]:
        """What one turn gave."""
        self._engine.step()
        now = time.perf_counter()
        return [(row, now) for row, each in enumerate(self.handles) for event in each.ready() for _ in event.tokens]

    def _awaited(self, until_s: float) -> Sequence[Stamp]:
        wait_s = min(until_s - time.perf_counter(), FOREVER_S)
        news: list[Stamp | BaseException] = []
        try:
            news.append(self._news.get(timeout=max(wait_s, 0.0)))
            while True:
                news.append(self._news.get_nowait())
        except queue.Empty:
            if not news and math.isinf(until_s):
                raise RuntimeError(f"the engine gave no token in {FOREVER_S:.0f} s") from None
        stamps = []
        for one in news:
            if isinstance(one, BaseException):
                raise one
            stamps.append(one)
        return stamps

    def close(self) -> None:
        for handle in self.handles:
            handle.cancel()
        while self._manual and self._engine.step():
            pass
        for reader in self._readers:
            reader.join()

    def _read(self, row: int, handle: Any) -> None:
        try:
            for event in handle.events():
                now = time.perf_counter()
                for _ in event.tokens:
                    self._news.put((row, now))
        except BaseException as error:  # noqa: BLE001 - handed to the one who waits for tokens
            self._news.put(error)
