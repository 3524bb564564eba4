"""The plan of a paired session: which process starts when, and in which order samples are taken. Pure.

Every coin comes from PCG64 seeded by sha256(experiment, session, part), so that a plan can be made again from its row.
`random_raw` is used, whose stream numpy fixes, not `Generator`, whose methods may change between versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine import errors

Role = Literal["base", "candidate"]
ORDERS = ("ABBA", "BAAB")
ROLE_OF: dict[str, Role] = {"A": "base", "B": "candidate"}


@dataclass(frozen=True)
class Quad:
    """`block`: running number in the session part. `order`: what the coin chose."""

    block: int
    order: str

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(ROLE_OF[letter] for letter in self.order)


@dataclass(frozen=True)
class Launch:
    """One pair of processes. `start_order`: which of them is started first, and discards its first sample first."""

    number: int
    start_order: tuple[Role, Role]
    quads: tuple[Quad, ...]


@dataclass(frozen=True)
class Plan:
    """`seed` is logged with the session; `quads_per_launch` quads share a pair of processes."""

    seed: int
    quads_per_launch: int
    launches: tuple[Launch, ...]

    @property
    def quads(self) -> int:
        return sum(len(launch.quads) for launch in self.launches)


def session_seed(experiment: str, session: str, part: str) -> int:
    """The seed of one part ("aa" or "ab") of a session."""
    text = "\n".join((experiment, session, part))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def _coins(seed: int) -> Iterator[int]:
    bits = np.random.PCG64(seed)
    while True:
        yield int(bits.random_raw()) >> 63


def make_plan(seed: int, quads: int, quads_per_launch: int) -> Plan:
    """Flip a coin for each launch's start order and each quad's order.

    Raises `InvalidValue` unless both numbers are >= 1 and every launch is full.
    """
    if quads < 1:
        raise errors.InvalidValue("quads", quads, "an integer >= 1")
    if quads_per_launch < 1 or quads % quads_per_launch:
        raise errors.InvalidValue("quads_per_launch", quads_per_launch, f"an integer >= 1 that divides {quads} quads")
    coin = _coins(seed)
    launches = []
    for number in range(quads // quads_per_launch):
        start: tuple[Role, Role] = ("base", "candidate") if next(coin) == 0 else ("candidate", "base")
        first = number * quads_per_launch
        blocks = range(first, first + quads_per_launch)
        launches.append(Launch(number, start, tuple(Quad(block, ORDERS[next(coin)]) for block in blocks)))
    return Plan(seed, quads_per_launch, tuple(launches))
