"""Which rows run next: a pure function of what waits, what runs and what is allowed. No MLX, no clock.

Waiting requests are admitted by priority, then in order of arrival; the first that does not fit holds back those behind
it, so that none is overtaken for ever. Each turn gives every ready row one step and one row one chunk of its prompt,
the row that was served longest ago first: a long prompt holds up a short one by a chunk at most. Where several prompts
can share a forward, those behind it join, as many as `Limits.prefill` has room for.

A row whose prompt ends takes its first step in the same turn; where turns are staged, in the next, before the chunks of
other prompts: in the order of mlx-lm's BatchGenerator (0.32.2, generate.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A request that has not begun. chunks: of its prompt; next_tokens: of the first of them; kv_bytes: what its caches
    will hold at their largest."""

    id: int
    chunks: int
    next_tokens: int = 0
    priority: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Active:
    """A request that runs. chunks_left: of its prompt; next_tokens: of the next of them; served: the turn of its last
    chunk, 0 for none; parked: its consumer is behind, so it waits."""

    id: int
    chunks_left: int
    next_tokens: int = 0
    served: int = 0
    parked: bool = False
    kv_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """rows: how many run at once; kv_bytes: what all their caches may hold, None for no limit; prefill: tokens of one
    forward of several prompts, the padding of the shorter ones counted, 0 where prompts share none; staged: whether a
    first step waits for the turn behind the last chunk."""

    rows: int
    kv_bytes: int | None = None
    prefill: int = 0
    staged: bool = False


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What to do next: begin `admit`, run a chunk of each of `prefill` in one forward, then step `decode`; where turns
    are staged, step before the chunk. All empty: there is nothing."""

    admit: tuple[int, ...] = ()
    prefill: tuple[int, ...] = ()
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
        rows.append(Active(id=request.id, chunks_left=request.chunks, next_tokens=request.next_tokens))
    runnable = [row for row in rows if not row.parked]
    chosen = _together(sorted((row for row in runnable if row.chunks_left), key=lambda row: row.served), limits.prefill)
    done = set() if limits.staged else {row.id for row in chosen if row.chunks_left == 1}
    decode = tuple(row.id for row in runnable if not row.chunks_left or row.id in done)
    return Turn(admit=tuple(admitted), prefill=tuple(row.id for row in chosen), decode=decode)


def _together(filling: Sequence[Active], tokens: int) -> Sequence[Active]:
    """The first row, and behind it those whose chunks lie beside it in a forward of at most `tokens`."""
    chosen = list(filling[:1])
    for row in filling[1:] if tokens else ():
        widest = max(each.next_tokens for each in (*chosen, row))
        if widest * (len(chosen) + 1) <= tokens:
            chosen.append(row)
    return chosen
