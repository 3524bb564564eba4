"""How fast to learn, and when to stop: warm-up, a plateau, a linear decay, from mlx's own schedules.

The decay is a fixed share of all steps. A run that has a time instead of a number of steps fixes the number when the
share of its time for the plateau is over; with that number it can be run again to the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
from mlx.optimizers import join_schedules, linear_schedule

from engine.errors import InvalidValue

PLATEAU, WHOLE = 3, 4  # three quarters of the steps come before the decay
LAST = 0.02  # of the rate, at the end
FOREVER = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """rate: of the plateau; warm_up: steps to it; steps: all of them, None while the time decides."""

    rate: float
    warm_up: int
    steps: int | None

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InvalidValue("rate", self.rate, "a number > 0")
        if self.warm_up < 1:
            raise InvalidValue("warm_up", self.warm_up, "at least 1 step")
        if self.steps is not None and self.steps < 1:
            raise InvalidValue("steps", self.steps, "at least 1")

    @property
    def decay_from(self) -> int:
        """The first step of the decay."""
        return FOREVER if self.steps is None else self.steps * PLATEAU // WHOLE

    def rates(self) -> Callable[[mx.array], mx.array]:
        """Step -> rate, as mlx builds it."""
        left = 1 if self.steps is None else max(1, self.steps - self.decay_from)
        parts = [
            linear_schedule(self.rate / self.warm_up, self.rate, self.warm_up),
            linear_schedule(self.rate, self.rate, 1),
            linear_schedule(self.rate, self.rate * LAST, left),
        ]
        warm_up = min(self.warm_up, self.decay_from)
        joined: Callable[[mx.array], mx.array] = join_schedules(parts, [warm_up, self.decay_from])
        return joined


def steps_from(step: int) -> int | None:
    """All steps of a run whose decay begins at `step`; None where no whole number has its decay there."""
    return step // PLATEAU * WHOLE if step and step % PLATEAU == 0 else None
