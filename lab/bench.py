"""Two stacks on the same prompt in coin-flipped ABBA/BAAB quads: the ratio of their speeds with its interval.

A is ours, B the other stack. A quad cancels linear drift; the logged coin removes the bias of a fixed order. This is a
measurement, not an experiment: no hypothesis, no verdict (`frontier lab run` has those).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine import errors
from lab.design import make_plan
from lab.estimate import Estimate, timing
from lab.recipes import Asked, Progress, RequireScheme, Sample
from oracles.contract import TimeProbe

TASKS = {"decode": "decode_tok_s", "prefill": "prefill_tok_s"}
PREFILL_DECODE_TOKENS = 2


@dataclass(frozen=True)
class QuadSample:
    """`arm`: "A" or "B"; `position`: 0..3 within the quad; `order`: what the coin chose."""

    quad: int
    order: str
    position: int
    arm: str
    sample: Sample


@dataclass(frozen=True)
class BenchResult:
    """`ratio`: speed of A over B; `a`, `b`: each arm's own speed, one unit a quad."""

    metric: str
    ratio: Estimate
    a: Estimate
    b: Estimate
    quads: tuple[QuadSample, ...]


def coins(quads: int, seed: int) -> list[str]:
    """The order of each quad. Errors: `InvalidValue` for fewer than one."""
    return [quad.order for launch in make_plan(seed, quads, quads).launches for quad in launch.quads]


def run_quads(
    arms: Mapping[str, tuple[str, str, Asked]],
    probe: TimeProbe,
    quads: int,
    seed: int,
    require: RequireScheme,
    tick: Progress,
) -> list[QuadSample]:
    """Take the samples; `arms["A"|"B"]`: (name, kv, worker). The first sample of each arm is discarded.

    Errors: `SchemeNotLive` from `require`; `InvalidValue` for fewer than one quad.
    """
    orders = coins(quads, seed)
    total = 4 * quads + 2
    for done, arm in enumerate(("A", "B")):
        tick(f"warm up {arms[arm][0]}", done, total)
        arms[arm][2].probe(probe)
    samples: list[QuadSample] = []
    for quad, order in enumerate(orders):
        for position, arm in enumerate(order):
            name, kv, worker = arms[arm]
            tick(f"quad {quad + 1}/{quads} {order}: {name}", 2 + len(samples), total)
            trace = worker.probe(probe)
            require(trace, kv)
            samples.append(QuadSample(quad, order, position, arm, Sample.of(name, quad, position, trace)))
    tick("done", total, total)
    return samples


def summarise(samples: Sequence[QuadSample], metric: str) -> BenchResult:
    """Per quad the two samples of an arm become their geometric mean; quads are the units of every interval."""
    if metric not in TASKS.values():
        raise errors.InvalidValue("metric", metric, TASKS.values())
    quads = sorted({s.quad for s in samples})

    def arm(name: str) -> list[float]:
        values = []
        for quad in quads:
            logs = [np.log(s.sample.__dict__[metric]) for s in samples if s.quad == quad and s.arm == name]
            if len(logs) != 2:
                raise errors.InvalidValue(f"samples of {name} in quad {quad}", len(logs), "2")
            values.append(float(np.exp(np.mean(logs))))
        return values

    a, b = arm("A"), arm("B")
    return BenchResult(metric, timing([x / y for x, y in zip(a, b, strict=True)]), timing(a), timing(b), tuple(samples))


def words(result: BenchResult, a: str, b: str) -> str:
    """The ratio in words that claim no more than its interval."""
    ratio = result.ratio
    if ratio.low is None or ratio.high is None:
        return f"{a} over {b}: {ratio.value:.3f}x; no interval, so nothing is claimed"
    span = f"{ratio.value:.3f}x (95 % interval {ratio.low:.3f} to {ratio.high:.3f}, {ratio.n} quads)"
    if ratio.low > 1:
        return f"{a} is faster than {b}: {span}"
    if ratio.high < 1:
        return f"{a} is slower than {b}: {span}"
    return f"{a} against {b}: no difference shown: {span}"
