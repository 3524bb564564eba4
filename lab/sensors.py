"""Is the machine quiet enough? Load, steal, swap, free memory and heat, before and during a session; the clock of the
CPU, which is read after every sample and judged over them all (`lab.stability`).

A sensor that cannot be read is "not judged", and printed so: never taken for good.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import psutil

THROTTLES = ("core_throttle_count", "package_throttle_count")
CPU_FOLDER = Path("/sys/devices/system/cpu")
SPEED_LIMIT = re.compile(r"CPU_Speed_Limit\s*=\s*(\d+)")
UNKNOWN = "this machine does not report it"


class Limits(Protocol):
    """What is read of a machine class."""

    steal_limit: float
    load_per_core: float
    free_bytes: int


@dataclass(frozen=True)
class Reading:
    """One reading of everything; None where the system does not tell. Swap, CPU times and throttles count from boot.

    throttles: how often the hardware slowed a core down for heat. clock_mhz: of the fastest core.
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
            return f"{self.name} not judged ({UNKNOWN})"
        return f"{self.name} {self.value:.3g} ({self.status}, limit {self.limit:.3g})"


def throttle_count(folder: Path = CPU_FOLDER) -> int | None:
    """Sum of the cores' own counters of slowing down for heat; None where the kernel shows none."""
    return _sum(path for name in THROTTLES for path in folder.glob(f"cpu[0-9]*/thermal_throttle/{name}"))


def speed_lost() -> float | None:
    """By how many percent macOS holds the CPU back for heat; None where it does not tell, and on other systems."""
    if shutil.which("pmset") is None:
        return None
    return lost_of(subprocess.run(["pmset", "-g", "therm"], capture_output=True, text=True, check=False).stdout)


def lost_of(therm: str) -> float | None:
    """The same from what `pmset -g therm` prints."""
    found = SPEED_LIMIT.search(therm)
    return None if found is None else 100.0 - float(found[1])


def clock_mhz() -> float | None:
    """The clock of the fastest core now: the one that has just worked, if any has. None where psutil gives none."""
    try:
        found = psutil.cpu_freq(percpu=True)
    except (AttributeError, NotImplementedError, OSError):  # a platform that psutil knows no clocks of
        return None
    return max((float(each.current) for each in found or ()), default=0.0) or None


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
        clock_mhz=clock_mhz(),
    )


def steal_share(before: Reading, after: Reading) -> float | None:
    """Share of CPU time that the host took between two readings; None if unknown or no time passed."""
    if before.steal_s is None or after.steal_s is None or before.cpu_s is None or after.cpu_s is None:
        return None
    passed = after.cpu_s - before.cpu_s
    return (after.steal_s - before.steal_s) / passed if passed > 0 else None


def judge(
    before: Reading, after: Reading, limits: Limits, *, cores: int, lost: float | None = None
) -> tuple[Sensor, ...]:
    """The state of the machine between two readings, against the limits of its class.

    The load is read at `before` only: later it holds our own processes. lost: percent of speed that the system takes
    away for heat, where it says that instead of counting.
    """
    load = None if before.load1 is None else before.load1 / cores
    swapped = None
    if before.swap_in_bytes is not None and after.swap_in_bytes is not None:
        swapped = float(after.swap_in_bytes - before.swap_in_bytes)
    free = None if after.free_bytes is None else float(after.free_bytes)
    heat = lost
    if before.throttles is not None and after.throttles is not None:
        heat = float(after.throttles - before.throttles)
    return (
        _sensor("load per core", load, limits.load_per_core),
        _sensor("steal", steal_share(before, after), limits.steal_limit),
        _sensor("swap-in bytes", swapped, 0.0),
        _sensor("free bytes", free, limits.free_bytes, low=True),
        _sensor("thermal", heat, 0.0),
    )


def _sensor(name: str, value: float | None, limit: float, *, low: bool = False) -> Sensor:
    if value is None:
        return Sensor(name, None, limit, "not judged")
    bad = value < limit if low else value > limit
    return Sensor(name, value, limit, "dirty" if bad else "ok")
