"""What an entry of the fault register is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    """What a probe saw. live: the fault is still there. evidence: one line with what was observed."""

    live: bool
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One place where an oracle is wrong.

    oracle: the stack at fault; its module and what it does there: `where`, `what`. ours: what the engine does.
    probe(model folder) runs in a child process, where it may import the oracle; family: the tiny model it gets.
    """

    oracle: str
    where: str
    what: str
    ours: str
    probe: Callable[[str], Shown]
    family: str = "llama"
