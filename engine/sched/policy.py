"""Which rows run next: a pure function of what waits, what runs and what is allowed. No MLX, no clock.

Waiting requests are admitted by priority, then in order of arrival; the first that does not fit holds back those behind
it, so that none is overtaken for ever. Each turn gives every ready row one step and one row one chunk of its prompt,
the row that was served longest ago first: a long prompt holds up a short one by a chunk at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A request that has not begun. chunks: of its prompt; kv_bytes: what its caches will hold at their largest."""

    id: int
    chunks: int
    priority: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Active:
    """A request that runs. chunks_left: of its prompt; served: the turn of its last chunk, 0 for none; parked: its
    consumer is behind, so it waits."""

    id: int
    chunks_left: int
    served: int = 0
    parked: bool = False
    kv_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """rows: how many run at once; kv_bytes: what all their caches may hold, None for no limit."""

    rows: int
    kv_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What to do next: begin `admit`, run a chunk of `prefill`, then step `decode`. All empty: there is nothing."""

    admit: tuple[int, ...] = ()
    prefill: int | None = None
    decode: tuple[int, ...] = ()


def plan(waiting: Sequence[Waiting], active: Sequence[Active], limits: Limits) -> Turn:
    """The next turn. `waiting` and `active` in order of arrival."""
    rows = list(active)
    admitted: list[int] = []
    used = sum(row.kv_bytes for row in rows)
    for request in sorted(waiting, key=lambda request: -request.priority):
        fits = limits.kv_bytes is None or used + request.kv_bytes <= limits.kv_bytes
        if len(rows) >= limits.rows or not fits:
            break
        used += request.kv_bytes
        admitted.append(request.id)
        rows.append(Active(id=request.id, chunks_left=request.chunks, kv_bytes=request.kv_bytes))
    runnable = [row for row in rows if not row.parked]
    filling = [row for row in runnable if row.chunks_left]
    chosen = min(filling, key=lambda row: row.served, default=None)
    last = chosen.id if chosen is not None and chosen.chunks_left == 1 else None
    decode = tuple(row.id for row in runnable if not row.chunks_left or row.id == last)
    return Turn(admit=tuple(admitted), prefill=None if chosen is None else chosen.id, decode=decode)
