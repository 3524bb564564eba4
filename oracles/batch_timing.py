"""How batches are timed: the same clock, the same arrivals and the same sums for every stack, in its own process.

A stack shows its running rows as a `Batch`. Tokens are stamped the moment the stack hands them out, to a reader of its
own or from the call that made them.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from oracles.contract import BusyProbe, LoadProbe, RowsProbe
from oracles.timing import begin, timed

# Rows that decode until they are told to stop.
ENDLESS = 1 << 20
Stamp = tuple[int, float]


class Batch(Protocol):
    """Rows that run side by side, numbered in the order of their arrival."""

    def add(self, prompt: tuple[int, ...], limit: int) -> int:
        """Hand in a greedy row of at most `limit` tokens, EOS or not; its number."""

    def tokens(self, until_s: float) -> Sequence[Stamp]:
        """(row, when) of each token since the last call. It may wait for one until `until_s`; a stack that works only
        when called takes one turn."""

    def close(self) -> None:
        """End all rows."""


BatchT = TypeVar("BatchT", bound=Batch)


def timed_rows(open_batch: Callable[[], BatchT], probe: RowsProbe) -> tuple[BatchT, dict[str, Any]]:
    """Time rows that arrive together. Returns the last batch, still open, and the times, means over the repeats.

    rows: how many. ttft_s: mean over rows. whole_s: arrival to the last token of all. decode_s: what decode_tokens,
    those behind each row's first, take at the rate at which all rows decode at once: between the first token of the
    last row to begin and the last token of the first to end; for one row simply first token to last.
    """
    size = len(probe.rows)
    after = size * (probe.limit - 1)
    sums = {"first_s": 0.0, "ttft_s": 0.0, "whole_s": 0.0, "decode_s": 0.0}
    batch: BatchT | None = None
    begin()
    for _ in range(probe.repeats):
        if batch is not None:
            batch.close()
        batch = open_batch()
        watch = Watch(batch)
        start = time.perf_counter()
        for row in probe.rows:
            watch.add(row, probe.limit)
        while sum(map(len, watch.whens)) < size * probe.limit:
            watch.look()
        whens = [[when - start for when in row] for row in watch.whens]
        if any(len(when) != probe.limit for when in whens):
            raise RuntimeError(f"rows made {[len(when) for when in whens]} tokens instead of {probe.limit} each")
        sums["first_s"] += min(when[0] for when in whens)
        sums["ttft_s"] += math.fsum(when[0] for when in whens) / size
        sums["whole_s"] += max(when[-1] for when in whens)
        sums["decode_s"] += after * together_s(whens)
    means = {name: value / probe.repeats for name, value in sums.items()}
    assert batch is not None
    doc = timed(means["first_s"], means["decode_s"], after)
    return batch, doc | {"ttft_s": means["ttft_s"], "whole_s": means["whole_s"], "rows": size}


def together_s(whens: Sequence[Sequence[float]]) -> float:
    """Seconds a token, of all rows together, while all of them decode. `whens`: row by row, when its tokens came."""
    begun, ended = max(when[0] for when in whens), min(when[-1] for when in whens)
    tokens = sum(begun < at <= ended for when in whens for at in when)
    if not tokens:
        raise RuntimeError("the rows never decoded together: a longer limit is needed")
    return (ended - begun) / tokens


def timed_busy(open_batch: Callable[[], BatchT], probe: BusyProbe, chunk: int) -> tuple[BatchT, dict[str, Any]]:
    """Time arrivals in a busy batch. Returns the batch, still open, and the times.

    ttfts_s: of each short arrival, from the moment that it was due. gaps_s: between tokens of the running rows while
    the long prompt went in, the slowest row of each step. step_s: the median gap while nobody arrives. chunk_s: of one
    chunk of `chunk` tokens, from the long prompt alone.
    """
    draws = np.random.Generator(np.random.PCG64(probe.seed))
    begin()
    chunk_s = _chunk_s(open_batch, probe, chunk)
    batch = open_batch()
    watch = Watch(batch)
    rows = range(len(probe.rows))
    for prompt in probe.rows:
        watch.add(prompt, ENDLESS)
    for row in rows:
        watch.first(row)
    quiet: list[float] = []
    ttfts: list[float] = []
    gaps: list[float] = []
    for prompt in (*[probe.short] * probe.arrivals, probe.long):
        quiet += watch.quiet_gaps(probe.quiet, rows)
        due = time.perf_counter() + float(draws.random()) * statistics.median(quiet)
        while time.perf_counter() < due:
            watch.look(due)
        came = watch.first(watch.add(prompt, 1))
        if prompt is probe.long:
            gaps = watch.gaps_between(due, came, rows)
        else:
            ttfts.append(came - due)
    # The allocator's peak is read while the rows still run: an engine may start a new count when the next one begins.
    doc = timed(chunk_s, math.fsum(quiet), len(quiet))
    doc |= {"ttft_s": math.fsum(ttfts) / len(ttfts), "ttfts_s": ttfts, "gaps_s": gaps}
    return batch, doc | {"step_s": statistics.median(quiet), "chunk_s": chunk_s}


def timed_load(open_batch: Callable[[], BatchT], probe: LoadProbe) -> tuple[BatchT, dict[str, Any]]:
    """Time requests that come one after the other. Returns the batch, still open, and the times.

    ttfts_s, e2es_s: of each request, from when it was due to its first and to its last token; gaps_s: between its
    tokens, of all requests. whole_s: from the first arrival to the last token of all. ttft_s: mean; decode_s: what
    decode_tokens, those behind each request's first, take at the mean gap of one request. prefill_s: the shortest time
    to a first token, in which nobody else was served.
    """
    begin()
    batch = open_batch()
    watch = Watch(batch)
    dues: list[float] = []
    start = time.perf_counter()

    def due(i: int) -> float:
        """When request i is to arrive; in a closed loop now, if there is room."""
        if probe.arrivals_s:
            return start + probe.arrivals_s[i]
        busy = sum(len(when) < probe.limit for when in watch.whens)
        return time.perf_counter() if busy < probe.concurrency else math.inf

    while len(dues) < len(probe.rows) or any(len(when) < probe.limit for when in watch.whens):
        while len(dues) < len(probe.rows) and (at := due(len(dues))) <= time.perf_counter():
            watch.add(probe.rows[len(dues)], probe.limit)
            dues.append(at)
        if any(len(when) < probe.limit for when in watch.whens):
            watch.look(due(len(dues)) if len(dues) < len(probe.rows) and probe.arrivals_s else math.inf)
        else:
            time.sleep(max(0.0, due(len(dues)) - time.perf_counter()) if len(dues) < len(probe.rows) else 0.0)
    ttfts = [when[0] - at for when, at in zip(watch.whens, dues, strict=True)]
    gaps = [b - a for when in watch.whens for a, b in itertools.pairwise(when)]
    doc = timed(min(ttfts), math.fsum(gaps), len(gaps))
    doc |= {"ttft_s": math.fsum(ttfts) / len(ttfts), "ttfts_s": ttfts, "gaps_s": gaps, "rows": len(probe.rows)}
    doc["e2es_s"] = [when[-1] - at for when, at in zip(watch.whens, dues, strict=True)]
    return batch, doc | {"whole_s": max(when[-1] for when in watch.whens) - min(dues)}


def _chunk_s(open_batch: Callable[[], Batch], probe: BusyProbe, chunk: int) -> float:
    """Seconds a chunk of the long prompt alone: its time to first token beyond that of its last token alone."""
    watch, seconds = Watch(open_batch()), []
    for prompt in (probe.long[-1:], probe.long):
        start = time.perf_counter()
        seconds.append(watch.first(watch.add(prompt, 1)) - start)
    watch.batch.close()
    return (seconds[1] - seconds[0]) / math.ceil((len(probe.long) - 1) / chunk)


class Watch:
    """When the tokens of a batch came, row by row."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.whens: list[list[float]] = []

    def add(self, prompt: tuple[int, ...], limit: int) -> int:
        self.whens.append([])
        return self.batch.add(prompt, limit)

    def look(self, until_s: float = math.inf) -> None:
        for row, when in self.batch.tokens(until_s):
            self.whens[row].append(when)

    def first(self, row: int) -> float:
        """When the first token of a row came, or comes."""
        while not self.whens[row]:
            self.look()
        return self.whens[row][0]

    def quiet_gaps(self, steps: int, rows: range) -> list[float]:
        """The next `steps` gaps of the first of the rows, which decode alone; all of them go on as far."""
        seen = [len(self.whens[row]) for row in rows]
        while any(len(self.whens[row]) - n <= steps for row, n in zip(rows, seen, strict=True)):
            self.look()
        return [b - a for a, b in itertools.pairwise(self.whens[rows[0]][seen[0] :])][:steps]

    def gaps_between(self, begun: float, ended: float, rows: range) -> list[float]:
        """Gaps of the rows that lie in this time at least in part, the slowest row of each step."""
        while any(self.whens[row][-1] < ended for row in rows):
            self.look()
        gaps = [[b - a for a, b in itertools.pairwise(self.whens[row]) if b > begun and a < ended] for row in rows]
        return [max(step) for step in zip(*gaps, strict=False)]
