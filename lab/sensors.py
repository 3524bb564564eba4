"""Is the machine quiet enough? Load, steal, swap, free memory, heat and clocks, before and during a session.

A sensor that cannot be read is "not judged", and printed so: never taken for good.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import psutil

THROTTLES = ("core_throttle_count", "package_throttle_count")
CPU_FOLDER = Path("/sys/devices/system/cpu")


class Limits(Protocol):
    """What is read of a machine class."""

    steal_limit: float
    load_per_core: float
    free_bytes: int
    clock_limit: float


@dataclass(frozen=True)
class Reading:
    """One reading of everything; None where the system does not tell. Swap, CPU times and throttles count from boot.

    throttles: how often the hardware slowed a core down for heat. clock_mhz: of the device that computes.
    """

    at: float
    load1: float | None
    steal_s: float | None
    cpu_s: float | None
    swap_in_bytes: int | None
    free_bytes: int | None
    throttles: int | None = None
    clock_mhz: float | None = None


@dataclass(frozen=True)
class Sensor:
    name: str
    value: float | None
    limit: float
    status: Literal["ok", "dirty", "not judged"]

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} not judged (cannot be read)"
        return f"{self.name} {self.value:.3g} ({self.status}, limit {self.limit:.3g})"


def throttle_count(folder: Path = CPU_FOLDER) -> int | None:
    """Sum of the cores' own counters of slowing down for heat; None where the kernel shows none."""
    return _sum(path for name in THROTTLES for path in folder.glob(f"cpu[0-9]*/thermal_throttle/{name}"))


def _sum(paths: Iterable[Path]) -> int | None:
    counts = [int(path.read_text()) for path in paths]
    return sum(counts) if counts else None


def read() -> Reading:
    """Read the sensors now."""
    times = psutil.cpu_times()._asdict()
    swap = psutil.swap_memory()
    return Reading(
        at=time.time(),
        load1=os.getloadavg()[0],
        steal_s=times.get("steal"),
        cpu_s=float(sum(v for name, v in times.items() if not name.startswith("guest"))),
        swap_in_bytes=int(swap.sin),
        free_bytes=int(psutil.virtual_memory().available),
        throttles=throttle_count(),
    )


def steal_share(before: Reading, after: Reading) -> float | None:
    """Share of CPU time that the host took between two readings; None if unknown or no time passed."""
    if before.steal_s is None or after.steal_s is None or before.cpu_s is None or after.cpu_s is None:
        return None
    passed = after.cpu_s - before.cpu_s
    return (after.steal_s - before.steal_s) / passed if passed > 0 else None


def judge(before: Reading, after: Reading, limits: Limits, *, cores: int) -> tuple[Sensor, ...]:
    """The state of the machine between two readings, against the limits of its class.

    The load is read at `before` only: later it holds our own processes.
    """
    load = None if before.load1 is None else before.load1 / cores
    swapped = None
    if before.swap_in_bytes is not None and after.swap_in_bytes is not None:
        swapped = float(after.swap_in_bytes - before.swap_in_bytes)
    free = None if after.free_bytes is None else float(after.free_bytes)
    heat = clock = None
    if before.throttles is not None and after.throttles is not None:
        heat = float(after.throttles - before.throttles)
    if before.clock_mhz and after.clock_mhz:
        clock = abs(after.clock_mhz / before.clock_mhz - 1)
    return (
        _sensor("load per core", load, limits.load_per_core),
        _sensor("steal", steal_share(before, after), limits.steal_limit),
        _sensor("swap-in bytes", swapped, 0.0),
        _sensor("free bytes", free, limits.free_bytes, low=True),
        _sensor("thermal", heat, 0.0),
        _sensor("clocks", clock, limits.clock_limit),
    )


def _sensor(name: str, value: float | None, limit: float, *, low: bool = False) -> Sensor:
    if value is None:
        return Sensor(name, None, limit, "not judged")
    bad = value < limit if low else value > limit
    return Sensor(name, value, limit, "dirty" if bad else "ok")
