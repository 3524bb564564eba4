"""Whether a timed number of the scorecard may be believed. Pure; the limits are those of the run's machine class.

A cell that fails a check stays on the page, grey, with each reason; counted numbers (bytes, KL) depend on no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lab import stats
from lab.config import MachineConf
from lab.estimate import Estimate
from lab.scorecard.card import Cell
from lab.stability import MACHINE_SENSORS

FEWEST = 2  # launches, for a spread between them
A_A_P = 0.05


def relative_half_width(estimate: Estimate) -> float:
    """Half of a ratio interval's width, relative to its middle; infinite without one."""
    if estimate.low is None or estimate.high is None or not estimate.low > 0:
        return math.inf
    return math.sqrt(estimate.high / estimate.low) - 1


def percent(share: float) -> str:
    return "unbounded" if not math.isfinite(share) else f"{100 * share:.1f} %"


def spread_reasons(values: Sequence[float], estimate: Estimate, unit: str, limits: MachineConf) -> Iterator[str]:
    """What the units of one recipe show: too few launches, too wide an interval, too large a spread."""
    if unit != "launch" or len(values) < FEWEST:
        yield "one launch: how launches differ is not known"
    half = relative_half_width(estimate)
    if half > limits.delta:
        yield f"interval half-width {percent(half)}, above {percent(limits.delta)}"
    if len(values) >= FEWEST:
        sd = float(np.log(values).std(ddof=1))
        if sd > limits.sd_limit:
            yield f"sd {percent(sd)}, above {percent(limits.sd_limit)}"


def aa_reasons(aa: Cell, gaps: Sequence[float], limits: MachineConf) -> Iterator[str]:
    """What the reference against itself shows. gaps: the logs of its ratios by launch."""
    if aa.estimate is None:
        yield "no A/A in these runs"
        return
    half = relative_half_width(aa.estimate)
    if half > limits.delta:
        yield f"A/A: interval half-width {percent(half)}, above {percent(limits.delta)}"
    if len(gaps) < FEWEST:
        return
    p = stats.wilcoxon_two_sided([stats.six_digits(gap) for gap in gaps])
    if p <= A_A_P:
        yield f"A/A differs: two-sided p {p:.3f}, at most {A_A_P}"
    least = stats.mde(stats.mean_sd(gaps)[1], len(gaps))
    if least > limits.delta:
        yield f"A/A: MDE {percent(least)}, above {percent(limits.delta)}"
    lag = stats.lag1(gaps)
    if lag is not None and abs(lag) > 2 / math.sqrt(len(gaps)):
        yield f"A/A: lag-1 {lag:.2f} beyond 2/sqrt({len(gaps)})"


def machine_reasons(
    steal: Sequence[float | None], sensors: Sequence[Mapping[str, Any]], limits: MachineConf
) -> Iterator[str]:
    """What the machine itself says: time taken by the host, heat and clocks; on a quiet class also load and memory."""
    known = [share for share in steal if share is not None]
    if known and math.fsum(known) / len(known) > limits.steal_limit:
        yield f"steal {percent(math.fsum(known) / len(known))}, above {percent(limits.steal_limit)}"
    for sensor in sensors:
        shared = limits.name == "shared" and sensor["name"] in MACHINE_SENSORS
        if sensor["status"] == "dirty" and sensor["name"] != "steal" and not shared:
            yield f"{sensor['name']} {sensor['value']:.3g}, limit {sensor['limit']:.3g}"


def log_ratios(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    return [math.log(a / b) for a, b in zip(top, bottom, strict=True)]
