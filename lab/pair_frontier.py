"""Row 6 of the table: does a candidate that pays for its gain stand on the frontier, beside its base? Pure.

The two arms of a session are points of `lab.frontier` on its four axes: decode speed by launch, peak bytes, artifact
bytes (equal: one model), and the gate's mean KL, 0 for the base. Who is dominated by its own base is of no use,
whatever others do. Other recipes stand beside both on the scorecard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.fidelity import FidelityRun
from lab.frontier import NEW_FRONTIER_P, Recipe, frontier
from lab.measure import QuadResult

ROLES = ("base", "candidate")


def launch_speeds(quads: Sequence[QuadResult], per_launch: int) -> list[tuple[float, float]]:
    """(base, candidate) decode speed of each whole launch, geometric means."""
    launches: dict[int, list[QuadResult]] = {}
    for quad in quads:
        if quad.valid:
            launches.setdefault(quad.launch, []).append(quad)
    pairs = []
    for group in launches.values():
        if len(group) == per_launch:
            logs = [
                [math.log(v) for quad in group for v in quad.of(role, "decode_tok_s")] for role in ("base", "candidate")
            ]
            pairs.append((math.exp(math.fsum(logs[0]) / len(logs[0])), math.exp(math.fsum(logs[1]) / len(logs[1]))))
    return pairs


def p_on_frontier(quads: Sequence[QuadResult], per_launch: int, gate: Sequence[FidelityRun]) -> float | None:
    """The share of bootstraps in which the base does not dominate the candidate; None with fewer than two launches or
    without a gate."""
    speeds = launch_speeds(quads, per_launch)
    if len(speeds) < 2 or not gate:
        return None
    valid = [quad for quad in quads if quad.valid]
    peaks = {
        "base": max(v for quad in valid for v in quad.of("base", "peak_bytes")),
        "candidate": max(v for quad in valid for v in quad.of("candidate", "peak_bytes")),
    }
    kl = {"base": 0.0, "candidate": max(run.kl_mean for run in gate)}
    recipes = [
        Recipe(
            role,
            {
                "decode_tok_s": [pair[i] for pair in speeds],
                "peak_bytes": [peaks[role]],
                "artifact_bytes": [1.0],
                "kl_nats": [kl[role]],
            },
        )
        for i, role in enumerate(ROLES)
    ]
    return frontier(recipes, reference="base").p_on["candidate"]


def stands(p: float | None) -> bool | None:
    """Whether that is often enough; None where nothing is known."""
    return None if p is None else p >= NEW_FRONTIER_P
