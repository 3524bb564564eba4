"""The time of a run: wall clock that nobody can set while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since 1970, read once and carried on by a clock that only goes forward, so that neither a cap nor the
    order of samples depends on what NTP or a user does in between."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()

    def __call__(self) -> float:
        return self._steady() + self._offset

    @property
    def jump_s(self) -> float:
        """By how much the wall clock was set forward since the start; negative: back."""
        return self._wall() - self()
