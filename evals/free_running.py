"""Where two arms part when each feeds itself: greedy generation from the same prompt, and the first token that differs.

One small difference changes all that follows, so only the first one is counted, with the reference's lead of its first
token over its second there: at a near tie it says little. Texts that stay equal to the end are censored there, and the
share of texts that are still equal is the Kaplan-Meier estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.interval import wilson
from oracles.contract import GenerateProbe, Trace


@dataclass(frozen=True)
class Parting:
    """One text. step: of the first token that differs, from 0, None where all are equal; gap: the reference's first
    token over its second there, in nats."""

    step: int | None
    gap: float | None


@dataclass(frozen=True)
class FreeRunning:
    """All texts of a run, `steps` tokens each.

    still_equal: share of texts without a difference after each step; median: the step by which half of them have one,
    None where that is not seen; equal: share at the end, with its Wilson interval for two texts or more.
    """

    steps: int
    partings: tuple[Parting, ...]
    still_equal: tuple[float, ...]
    median: int | None
    equal: float
    equal_interval: tuple[float, float] | None

    @property
    def gaps(self) -> tuple[float, ...]:
        """The reference's leads where texts part, in order of size."""
        return tuple(sorted(parting.gap for parting in self.partings if parting.gap is not None))


def free_probe(prompt: Sequence[int], steps: int) -> GenerateProbe:
    """Greedy, through any end-of-sequence token."""
    return GenerateProbe(token_ids=tuple(prompt), sampling={"max_tokens": steps, "ignore_eos": True})


def part(reference: Trace, candidate: Trace) -> Parting:
    """The first difference of two generations of one prompt."""
    pairs = zip(reference.doc["tokens"], candidate.doc["tokens"], strict=True)
    step = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if step is None:
        return Parting(None, None)
    import mlx.core as mx

    row = np.sort(np.array(reference.tensors["logprobs"][step].astype(mx.float32)).astype(np.float64))
    return Parting(step, float(row[-1] - row[-2]))


def free_running(partings: Sequence[Parting], steps: int) -> FreeRunning:
    """The table of one candidate's texts, at least one."""
    times = [steps if parting.step is None else parting.step for parting in partings]
    curve = kaplan_meier(times, [parting.step is not None for parting in partings], steps)
    equal = sum(parting.step is None for parting in partings)
    return FreeRunning(
        steps=steps,
        partings=tuple(partings),
        still_equal=curve,
        median=next((i for i, share in enumerate(curve) if share <= 0.5), None),
        equal=equal / len(partings),
        equal_interval=wilson(equal, len(partings)),
    )


def kaplan_meier(times: Sequence[int], seen: Sequence[bool], steps: int) -> tuple[float, ...]:
    """The share that is left after each of the steps 0 to steps - 1. times: the step of each one's event, or from which
    on it is not watched any more, by `seen` (Kaplan and Meier 1958)."""
    curve, share = [], 1.0
    for step in range(steps):
        watched = sum(time >= step for time in times)
        events = sum(time == step and event for time, event in zip(times, seen, strict=True))
        share *= 1 - events / watched if watched else 1.0
        curve.append(share)
    return tuple(curve)
