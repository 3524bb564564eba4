"""Row 6 of the table: does a candidate that pays for its gain stand on the frontier of the recipes that are measured?
Pure.

Recipes are compared on the axes of `lab.frontier`: decode speed, peak bytes, artifact bytes (equal: one model), and
mean KL, 0 for the base. Only differences decide dominance, so that speed is the ratio to the base of the same launch:
other recipes were measured in sessions of their own, against the same base. Letters: R draws, A axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from lab.design import Role
from lab.fidelity import FidelityRun
from lab.frontier import AXES, BOOTSTRAP_DRAWS, NEW_FRONTIER_P, dominance
from lab.measure import QuadResult

Floats = NDArray[np.float64]
SEED = 20
ROLES: tuple[Role, Role] = ("base", "candidate")


@dataclass(frozen=True)
class Point:
    """A recipe beside its base. log_ratios: of its decode speed to the base's, one a launch, at least two; kl_nats: to
    the base, by protocol and number of positions."""

    name: str
    log_ratios: tuple[float, ...]
    peak_bytes: float
    kl_nats: Mapping[str, float]


@dataclass(frozen=True)
class Beside:
    """Recipes that a candidate is judged beside, its base apart, and why each other one is left out, in words."""

    points: tuple[Point, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`its base and 2 other recipes (kv4, turbo_k8v3)`."""
        if not self.points:
            return "its base alone"
        count = f"{len(self.points)} other recipe{'s' if len(self.points) > 1 else ''}"
        return f"its base and {count} ({', '.join(point.name for point in self.points)})"


def launch_log_ratios(quads: Sequence[QuadResult], per_launch: int) -> tuple[float, ...]:
    """Of the candidate's decode speed to the base's, one for each whole launch, from geometric means."""
    launches: dict[int, list[QuadResult]] = {}
    for quad in quads:
        if quad.valid:
            launches.setdefault(quad.launch, []).append(quad)
    found = []
    for group in (each for each in launches.values() if len(each) == per_launch):
        logs = {role: [math.log(value) for quad in group for value in quad.of(role, "decode_tok_s")] for role in ROLES}
        base, candidate = (math.fsum(each) / len(each) for each in logs.values())
        found.append(candidate - base)
    return tuple(found)


def points_of(
    name: str, quads: Sequence[QuadResult], per_launch: int, gate: Sequence[FidelityRun]
) -> tuple[Point, Point] | None:
    """(base, candidate) of a session; None with fewer than two launches or without a gate."""
    ratios = launch_log_ratios(quads, per_launch)
    if len(ratios) < 2 or not gate:
        return None
    kl = {f"{run.protocol}, {run.total} positions": run.kl_mean for run in gate}
    peaks = [max(v for quad in quads if quad.valid for v in quad.of(role, "peak_bytes")) for role in ROLES]
    base = Point("base", (0.0,) * len(ratios), peaks[0], dict.fromkeys(kl, 0.0))
    return base, Point(name, ratios, peaks[1], kl)


def p_on_frontier(own: Point, others: Sequence[Point]) -> float:
    """The share of bootstraps over launches in which none of the others dominates the candidate."""
    free = np.ones(BOOTSTRAP_DRAWS, dtype=np.bool_)
    speed = _drawn(own, 0)
    for n, other in enumerate(others, start=1):
        kl = _worst_kl(own, other)
        costs = np.zeros((BOOTSTRAP_DRAWS, 2, len(AXES)))  # [R, other and own, A]; artifact bytes are equal
        eps = np.zeros(len(AXES))
        for a, axis in enumerate(AXES):
            eps[a] = math.log1p(axis.eps) if axis.ratio else axis.eps
            if axis.name == "decode_tok_s":
                eps[a] = max(eps[a], _half_width(own, other))
                costs[:, 0, a], costs[:, 1, a] = -_drawn(other, n), -speed
            elif axis.name == "peak_bytes":
                costs[:, :, a] = math.log(other.peak_bytes), math.log(own.peak_bytes)
            elif axis.name == "kl_nats":
                costs[:, :, a] = kl
        free &= ~dominance(costs, np.broadcast_to(eps, (2, 2, len(AXES))))[:, 0, 1]
    return float(free.mean())


def _worst_kl(own: Point, other: Point) -> tuple[float, float]:
    """(the other's, one's own): the largest mean over the protocols that both were scored by."""
    both = own.kl_nats.keys() & other.kl_nats.keys()
    return max(other.kl_nats[p] for p in both), max(own.kl_nats[p] for p in both)


def _drawn(point: Point, stream: int) -> Floats:
    """[R] mean log ratios over launches drawn with replacement, each recipe's by themselves."""
    rng, values = np.random.Generator(np.random.PCG64([SEED, stream])), np.asarray(point.log_ratios)
    means: Floats = values[rng.integers(0, len(values), (BOOTSTRAP_DRAWS, len(values)))].mean(axis=1)
    return means


def _half_width(one: Point, other: Point) -> float:
    """Of the 95 % interval of the difference of two speeds, in logs, by Welch: the sides are independent, and a base
    has no spread of its own."""
    sizes = [len(each.log_ratios) for each in (one, other)]
    squares = [float(np.var(each.log_ratios, ddof=1)) / n for each, n in zip((one, other), sizes, strict=True)]
    total = math.fsum(squares)
    if total == 0:
        return 0.0
    freedom = total**2 / math.fsum(s**2 / (n - 1) for s, n in zip(squares, sizes, strict=True))
    return float(scipy_stats.t.ppf(0.975, freedom)) * math.sqrt(total)


def stands(p: float | None) -> bool | None:
    """Whether that is often enough; None where nothing is known."""
    return None if p is None else p >= NEW_FRONTIER_P
