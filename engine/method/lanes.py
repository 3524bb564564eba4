"""How the rows of one forward lie beside each other, and which rows share one.

`Together`: where nothing is asked of that but speed. Rows keep caches of their own or lie in padded buffers, merged
anew where other rows ran last. `Batched`: as in mlx-lm's BatchGenerator (0.32.2, generate.py), for its bits at the same
composition: prompts that go on are one batch and running rows another, each with padding and masks of its own; a row
moves from the one to the other with the first step behind its prompt, which it takes beside those that begin with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import mlx.core as mx

from engine.kv.base import LayerCache
from engine.kv.batched import Batch, release
from engine.kv.padded import PaddedKV, fit_for_padding
from engine.kv.plan import KVPlan
from engine.kv.rows import Slot, align, copied, merged, padded, settle


class Seat(Protocol):
    """A row, as far as lanes know it."""

    caches: list[LayerCache]


S = TypeVar("S", bound=Seat)


class Lanes(ABC, Generic[S]):
    """Where rows lie. joint: whether several prompts may go on in one forward; staged: whether a row's first step waits
    for the turn behind its last chunk, and rows step once more behind their last token; copied_bytes: because rows
    joined or left others, so far."""

    joint = False
    staged = False
    copied_bytes = 0

    @abstractmethod
    def enter(self, seat: S) -> None:
        """A row has begun."""

    @abstractmethod
    def leave(self, seat: S) -> None:
        """A row has ended, or goes on in its own caches."""

    @abstractmethod
    def filling(self, seats: Sequence[S]) -> list[S]:
        """The rows of a forward of prompts, in the order in which they lie in it."""

    @abstractmethod
    def fill(self, seats: list[S], lengths: tuple[int, ...]) -> Sequence[Slot]:
        """What that forward takes; each row's tokens in it."""

    @abstractmethod
    def filled(self, lengths: tuple[int, ...]) -> list[mx.array]:
        """It was built: what the caches hold, for evaluation."""

    @abstractmethod
    def starting(self, seats: list[S]) -> Iterator[list[S]]:
        """The groups of rows that take their first step together. The next is asked for when the last was built."""

    @abstractmethod
    def running(self, seats: list[S]) -> Iterator[list[S]]:
        """The same of rows that have taken it."""

    @abstractmethod
    def slots(self, seats: list[S]) -> Sequence[Slot]:
        """What the forward of one of these groups takes."""


class Together(Lanes[S]):
    """Rows lie where they are fastest. layers: which caches lie in one buffer; none for caches of their own. joint:
    where all of them do, and no module asks for one buffer: such a module may do one token otherwise than several."""

    def __init__(self, kv: KVPlan, *, buffers: bool, joint: bool) -> None:
        self._layers = fit_for_padding(kv) if buffers else []
        self.joint = bool(self._layers) and all(self._layers) and joint
        self._seats: tuple[S, ...] = ()  # whose caches `_slots` merges
        self._slots: list[Slot] = []
        self._filling: Sequence[Slot] = []

    def enter(self, seat: S) -> None:
        """It keeps its own caches until it runs beside others."""

    def leave(self, seat: S) -> None:
        if seat in self._seats:
            self._part()

    def filling(self, seats: Sequence[S]) -> list[S]:
        return list(seats)

    def fill(self, seats: list[S], lengths: tuple[int, ...]) -> Sequence[Slot]:
        if len(seats) == 1:
            self.leave(seats[0])
            self._filling = seats[0].caches
            return self._filling
        assert self.joint
        self._part()
        self._slots = padded([seat.caches for seat in seats], self._layers, lengths=lengths)
        self._seats = tuple(seats)  # their first step finds them so
        self.copied_bytes += copied(self._slots)
        self._filling = self._slots
        return self._slots

    def filled(self, lengths: tuple[int, ...]) -> list[mx.array]:
        slots, self._filling = self._filling, []
        if len(lengths) > 1:
            # Or old places would be alive beside the new.
            mx.eval([a for slot in slots if isinstance(slot, PaddedKV) for a in slot.arrays()])
            align(slots)
        return [a for slot in slots if isinstance(slot, PaddedKV | LayerCache) for a in slot.arrays()]

    def starting(self, seats: list[S]) -> Iterator[list[S]]:
        return iter([seats] if self.joint and seats else [[seat] for seat in seats])

    def running(self, seats: list[S]) -> Iterator[list[S]]:
        return iter([seats] if seats else [])

    def slots(self, seats: list[S]) -> Sequence[Slot]:
        if len(seats) == 1:
            self.leave(seats[0])
            return seats[0].caches
        if tuple(seats) != self._seats:
            self._part()
            caches = [seat.caches for seat in seats]
            self._slots = padded(caches, self._layers) if self._layers else merged(caches)
            self._seats = tuple(seats)
            self.copied_bytes += copied(self._slots)
        return self._slots

    def _part(self) -> None:
        """Give every row of the last step its own caches back."""
        settle(self._slots)
        self._seats, self._slots = (), []


class Table(Generic[S]):
    """Rows of one of mlx-lm's batches."""

    def __init__(self, seats: list[S], batch: Batch) -> None:
        self.seats, self.batch = seats, batch

    @classmethod
    def of(cls, seats: list[S]) -> Table[S]:
        """Rows that come with their own caches."""
        return cls(seats, Batch([seat.caches for seat in seats]))

    def keeping(self, seats: Sequence[S]) -> Table[S] | None:
        """Those of its rows that are among `seats`; None if none is."""
        kept = [i for i, seat in enumerate(self.seats) if seat in seats]
        if len(kept) == len(self.seats):
            return self
        return Table([self.seats[i] for i in kept], self.batch.take(kept)) if kept else None


class Batched(Lanes[S]):
    """Rows lie as in mlx-lm's BatchGenerator. alone: a row that begins with no other there keeps its own caches,
    without a mask, as in mlx-lm's plain decoding, until another comes."""

    joint = staged = True

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._new: list[S] = []
        self._lone: S | None = None
        self._lone_runs = False
        self._prompts: Table[S] | None = None
        self._running: Table[S] | None = None
        self._now: Table[S] | None = None  # what the present forward takes; None for the lone row
        self._gone: list[S] = []

    def enter(self, seat: S) -> None:
        self._new.append(seat)

    def leave(self, seat: S) -> None:
        if seat is self._lone:
            self._lone = None
        elif seat in self._new:
            self._new.remove(seat)
        else:
            release(seat.caches)
            self._gone.append(seat)
            tables = [table for table in (self._prompts, self._running) if table is not None]
            if all(seat in self._gone for table in tables for seat in table.seats):
                self._prompts = self._running = self._now = None
                self._gone = []

    def filling(self, seats: Sequence[S]) -> list[S]:
        self._place()
        if self._lone is not None:
            self._now, self._lone_runs = None, False
            return list(seats)
        self._prompts = self._now = self._with(self._prompts, seats)
        return list(self._now.seats)

    def fill(self, seats: list[S], lengths: tuple[int, ...]) -> Sequence[Slot]:
        if self._now is None:
            return seats[0].caches
        self._now.batch.prepare(lengths)
        return self._now.batch.layers

    def filled(self, lengths: tuple[int, ...]) -> list[mx.array]:
        if self._now is None:
            assert self._lone is not None
            return [a for cache in self._lone.caches for a in cache.arrays()]
        if len(set(lengths)) > 1:
            mx.eval(self._now.batch.arrays())
            self._now.batch.finalize(lengths)
        return self._now.batch.arrays()

    def starting(self, seats: list[S]) -> Iterator[list[S]]:
        if self._is_lone(seats):
            yield seats
        elif seats:
            prompts = self._prompts
            begun = self._now = self._with(None if prompts is None else prompts.keeping(seats), seats)
            self._prompts = None if prompts is None else prompts.keeping([s for s in prompts.seats if s not in seats])
            yield list(begun.seats)
            self._running = begun if self._running is None else self._joined(self._running, begun)

    def running(self, seats: list[S]) -> Iterator[list[S]]:
        if self._is_lone(seats):
            yield seats
        elif seats:
            self._running = self._now = self._with(self._running, seats)
            yield list(self._running.seats)

    def _is_lone(self, seats: list[S]) -> bool:
        """Give all rows their place; whether the step to come is that of a row in its own caches."""
        self._place()
        if not seats or self._lone is None:
            return False
        self._now, self._lone_runs = None, True
        return True

    def slots(self, seats: list[S]) -> Sequence[Slot]:
        return seats[0].caches if self._now is None else self._now.batch.layers

    def _place(self) -> None:
        """Give the rows that have come their place, and those that have gone none."""
        self._prompts, self._running = self._staying(self._prompts), self._staying(self._running)
        self._gone = []
        if not self._new:
            return
        new, self._new = self._new, []
        others = self._lone is not None or self._prompts is not None or self._running is not None
        if self._alone and len(new) == 1 and not others:
            self._lone = new[0]
            return
        if self._lone is not None:
            table = Table.of([self._lone])
            self._prompts, self._running = (None, table) if self._lone_runs else (table, None)
            self._lone = None
        self._prompts = self._with(self._prompts, [*(self._prompts.seats if self._prompts else []), *new])

    def _staying(self, table: Table[S] | None) -> Table[S] | None:
        """Without the rows that have gone."""
        if table is None or not self._gone:
            return table
        return table.keeping([seat for seat in table.seats if seat not in self._gone])

    def _with(self, table: Table[S] | None, seats: Sequence[S]) -> Table[S]:
        """The table with exactly these rows: those that are there first, in their order."""
        kept = None if table is None else table.keeping(seats)
        missing = [seat for seat in seats if kept is None or seat not in kept.seats]
        if not missing:
            assert kept is not None
            return kept
        came = Table.of(missing)
        self.copied_bytes += came.batch.nbytes
        return came if kept is None else self._joined(kept, came)

    def _joined(self, table: Table[S], behind: Table[S]) -> Table[S]:
        both = Table([*table.seats, *behind.seats], table.batch.joined(behind.batch))
        self.copied_bytes += both.batch.nbytes
        return both
