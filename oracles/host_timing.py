"""Where the time of one decode step goes: what the host does, and what the device does, each beside the other.

A step is three things in turn. The host builds its operations (Python, MLX's graph), hands them to the device
(encoding), and waits for what is still running. The device's own time is seen only when it never waits for the host:
so it is held by work of a known length while some steps queue behind it, and their time is what comes on top.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from engine import machine
from oracles.contract import HostProbe
from oracles.timing import begin, seeded_steps

WARM_STEPS = 4
# Steps in a queue: MLX lets no more than ten evaluations wait.
QUEUED = 4
# The device is held for so many times what the host needs to queue the steps.
HOLD_FACTOR = 3.0
# Side of the products that hold it: one of them must take far longer than the host needs to hand it in.
HOLD_SIDE = {"cpu": 256}
LARGE_SIDE = 4096
HOLD_REPEATS = 3
MOST_HOLD_S = 5.0


def timed_host(forward: Callable[[Any], Any], probe: HostProbe) -> dict[str, Any]:
    """Seconds a step, medians. `forward`: token ids [1, L] -> unevaluated logits [1, L, V], over an empty cache.

    build_s, encode_s: of the host; wait_s: from there to the token; step_s: their sum, as each step has it alone.
    device_s: of the device, when steps queue; None where the host could not keep ahead of it.
    """
    import mlx.core as mx

    mx.eval(forward(mx.array(list(probe.token_ids))[None]))
    fed = seeded_steps(probe.token_ids, WARM_STEPS + probe.steps + (1 + HOLD_REPEATS) * QUEUED)
    mx.eval(fed)
    begin()
    parts = [_alone(forward, token) for token in fed[: WARM_STEPS + probe.steps]][WARM_STEPS:]
    build, encode, wait = (statistics.median(times) for times in zip(*parts, strict=True))
    queued_s = _queued_s(forward, fed[WARM_STEPS + probe.steps :], build + encode + wait)
    step = statistics.median(map(math.fsum, parts))
    return {"build_s": build, "encode_s": encode, "wait_s": wait, "step_s": step, "device_s": queued_s}


def _greedy(logits: Any) -> Any:
    import mlx.core as mx

    return mx.argmax(logits[:, -1], axis=-1)


def _alone(forward: Callable[[Any], Any], token: Any) -> tuple[float, float, float]:
    """(build, encode, wait) of one step."""
    import mlx.core as mx

    start = time.perf_counter()
    chosen = _greedy(forward(token))
    built = time.perf_counter()
    mx.async_eval(chosen)
    encoded = time.perf_counter()
    mx.eval(chosen)
    return built - start, encoded - built, time.perf_counter() - encoded


def _queued_s(forward: Callable[[Any], Any], fed: list[Any], step_s: float) -> float | None:
    """Seconds a step behind a device that is held, the least of a few tries; None if it was free too early."""
    import mlx.core as mx

    n = HOLD_SIDE.get(machine().device, LARGE_SIDE)
    side = mx.random.normal((n, n), key=mx.random.key(0)) / math.sqrt(n)
    mx.eval(side)
    hold = _Hold(side, HOLD_FACTOR * QUEUED * step_s)
    found = []
    for i in range(1 + HOLD_REPEATS):  # the first of them compiles what a queue needs
        alone = hold.run_s(lambda: [])[0]
        steps = fed[i * QUEUED : (i + 1) * QUEUED]

        def queue(steps: list[Any] = steps) -> list[Any]:
            chosen = []
            for token in steps:
                chosen.append(_greedy(forward(token)))
                mx.async_eval(chosen[-1])
            return chosen

        whole, queued = hold.run_s(queue)
        if i and queued < alone and whole > alone:
            found.append((whole - alone) / QUEUED)
    return min(found, default=None)


class _Hold:
    """Work that keeps the device busy for at least `seconds`: products, each of the one before."""

    def __init__(self, side: Any, seconds: float) -> None:
        self._side, self._products = side, 1
        self.run_s(lambda: [])
        while self.run_s(lambda: [])[0] < min(seconds, MOST_HOLD_S):
            self._products *= 2

    def run_s(self, behind: Callable[[], list[Any]]) -> tuple[float, float]:
        """(until all is done, until `behind` had queued its own work), in seconds."""
        import mlx.core as mx

        mx.synchronize()
        start = time.perf_counter()
        held = self._side
        for _ in range(self._products):
            held = held @ self._side
        mx.async_eval(held)
        rest = behind()
        queued = time.perf_counter() - start
        mx.eval(held, *rest)
        return time.perf_counter() - start, queued
