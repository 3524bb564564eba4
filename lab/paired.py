"""The session of every `frontier bench` with a criterion: a pilot of each side, then launches of two quads.

Both processes are new in each launch, coins choose every order (`lab.design`, `lab.measure`), and the unit of an
interval is a launch (`lab.stats`). A is the other stack ("base"), B the engine ("candidate").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from engine import errors
from lab.design import make_plan, session_seed
from lab.measure import Asked, Bench, Sample, Start, TimedProbe
from oracles.contract import StackConfig, Trace

QUADS_PER_LAUNCH = 2
Found = TypeVar("Found")
S = TypeVar("S", bound=Sample)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """`task`: of `frontier bench`; `name`: what is measured, in progress and seed; `arms`: (the other, the engine).

    Errors: `InvalidValue` for fewer than one launch.
    """

    task: str
    name: str
    arms: tuple[StackConfig, StackConfig]
    launches: int
    start: Start
    tick: Callable[[str], None]

    def __post_init__(self) -> None:
        if self.launches < 1:
            raise errors.InvalidValue("--launches", self.launches, "an integer >= 1")

    @property
    def seed(self) -> int:
        """Of the coins."""
        return session_seed(f"bench {self.task}", self.name, "ab")

    def pilots(self, ask: Callable[[Asked], Found]) -> list[Found]:
        """What `ask` finds of the engine and of the other, each in a process of its own.

        The engine comes first: what it refuses is known before the other loads. Errors: `OracleRefused`,
        `OracleCrashed`.
        """
        found = []
        for arm in reversed(self.arms):
            self.tick(f"{self.name}: pilot of {arm.stack}")
            worker = self.start(arm)
            try:
                found.append(ask(worker))
            finally:
                worker.close()
        return found

    def samples(self, probe: TimedProbe, extend: Callable[[Sample, Trace], S]) -> list[S]:
        """All samples, the discarded ones of each launch among them. Errors: `OracleCrashed`, `LeverNotApplied`."""
        taken: list[S] = []

        def keep(sample: Sample, trace: Trace) -> Sample:
            taken.append(extend(sample, trace))
            return taken[-1]

        Bench(
            arms={"base": self.arms[0], "candidate": self.arms[1]},
            probe=probe,
            start=self.start,
            record=lambda _sample: None,
            tick=lambda what: self.tick(f"{self.name}: {what}"),
            inspect=lambda _role, _trace: None,
            extend=keep,
        ).part("ab", make_plan(self.seed, self.launches * QUADS_PER_LAUNCH, QUADS_PER_LAUNCH), discard=1)
        return taken
