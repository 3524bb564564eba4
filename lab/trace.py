"""A recorded arrival schedule, replayed turn by turn, and its timeline.

A line of a schedule is one request: {"turn": 3, "prompt": "text" or [ids], "cancel": 9, ...}, turn the turn before
which it arrives, cancel the one before which it is cancelled, everything else a field of `SamplingParams`, or priority
and deadline_s of `Request`. Replay counts turns, not seconds, so it is the same every time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import Engine, Generation, Request, SamplingParams, errors

REQUEST_FIELDS = ("priority", "deadline_s")


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One line of a schedule."""

    turn: int
    request: Request
    cancel: int | None = None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One turn as it ran: rows by their line's index. kv_bytes: what the caches of all rows hold behind it;
    copied_bytes: what was copied because rows joined or left others; cached_tokens: of prompts that began, found in the
    prefix cache."""

    turn: int
    ms: float
    admitted: tuple[int, ...]
    prefilled: tuple[int, ...]
    decoded: tuple[int, ...]
    ended: tuple[int, ...]
    kv_bytes: int
    copied_bytes: int
    cached_tokens: int


@dataclass(frozen=True)
class Replay:
    """`outcomes`: by line, the generation or what ended the request."""

    moments: tuple[Moment, ...]
    outcomes: tuple[Generation | errors.FrontierError, ...]


def read_schedule(path: Path) -> list[Arrival]:
    """The lines of a schedule. Raises `CorruptFile` for one that is no such line, and what its values raise."""
    arrivals = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise errors.CorruptFile(path, f"line {number} is not JSON: {error}") from error
        if not isinstance(fields, dict) or "prompt" not in fields:
            raise errors.CorruptFile(path, f"line {number} is not an object with a prompt")
        arrivals.append(_arrival(fields))
    if not arrivals:
        raise errors.CorruptFile(path, "it has no requests")
    return arrivals


def _arrival(fields: Mapping[str, Any]) -> Arrival:
    rest = dict(fields)
    turn, cancel, prompt = rest.pop("turn", 0), rest.pop("cancel", None), rest.pop("prompt")
    for name, value in (("turn", turn), ("cancel", cancel)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise errors.InvalidValue(name, value, "an integer >= 0")
    if cancel is not None and cancel < turn:
        raise errors.InvalidValue("cancel", cancel, f"at least the turn of arrival, {turn}")
    asked = {name: rest.pop(name) for name in REQUEST_FIELDS if name in rest}
    sampling = SamplingParams.from_dict(rest)
    return Arrival(
        turn=turn, cancel=cancel, request=Request(prompt=prompt, sampling=sampling, delivery="collect", **asked)
    )


def replay(engine: Engine, arrivals: Sequence[Arrival]) -> Replay:
    """Run a schedule on an engine that is driven by hand. Raises `WrongThread` for one that drives itself."""
    moments: list[Moment] = []
    handles: dict[int, Any] = {}
    ids: dict[int, int] = {}  # the engine's number of a request -> its line

    def note(log: Any) -> None:
        moments.append(
            Moment(
                turn=turn,
                ms=(log.end_s - log.start_s) * 1e3,
                admitted=tuple(ids[i] for i in log.turn.admit),
                prefilled=tuple(ids[i] for i in log.turn.prefill),
                decoded=tuple(ids[i] for i in log.turn.decode),
                ended=tuple(ids[i] for i in log.ended),
                kv_bytes=log.kv_bytes,
                copied_bytes=log.copied_bytes,
                cached_tokens=log.cached_tokens,
            )
        )

    engine.trace_turns(note)
    turn, busy = 0, True
    while busy or len(handles) < len(arrivals):
        for line, arrival in enumerate(arrivals):
            if arrival.turn == turn:
                handles[line] = engine.submit(arrival.request)
                ids[handles[line].id] = line
            if arrival.cancel == turn and line in handles:
                handles[line].cancel()
        busy = engine.step()
        turn += 1
    engine.trace_turns(None)
    return Replay(tuple(moments), tuple(_outcome(handles[line]) for line in range(len(arrivals))))


def _outcome(handle: Any) -> Generation | errors.FrontierError:
    try:
        done: Generation = handle.result()
    except errors.FrontierError as error:
        return error
    return done


def draw(run: Replay, path: Path) -> None:
    """The timeline as a picture: a line a request (waiting, prefill chunks, steps, its end), bytes of caches below."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    lines = len(run.outcomes)
    figure = Figure(figsize=(9, 1.6 + 0.28 * lines + 1.2), layout="constrained")
    rows, held = figure.subplots(2, 1, sharex=True, height_ratios=(max(lines, 3), 3))
    colours = {"prefill chunk": "#c8551b", "step": "#0b6bb0"}
    for moment in run.moments:
        for line in moment.prefilled:
            rows.barh(line, 1, left=moment.turn, height=0.8, color=colours["prefill chunk"])
        for line in moment.decoded:
            both = line in moment.prefilled
            rows.barh(line, 0.5 if both else 1, left=moment.turn + 0.5 * both, height=0.8, color=colours["step"])
        for line in moment.ended:
            rows.plot(moment.turn + 1, line, marker="|", color="#1c1c1a", markersize=9)
    rows.set_yticks(range(lines), [f"request {line}" for line in range(lines)])
    rows.set_ylim(lines - 0.5, -0.5)
    rows.legend(
        handles=[Patch(color=colour, label=label) for label, colour in colours.items()],
        loc="upper right",
        frameon=False,
    )
    held.step([m.turn for m in run.moments], [m.kv_bytes / 2**10 for m in run.moments], where="post", color="#2b8a6b")
    held.set_ylabel("KV cache, KiB")
    held.set_xlabel("turn of the scheduler")
    held.set_ylim(bottom=0)
    figure.savefig(path)
