"""What the tests of the likelihood tasks share: planted likelihoods, and the order that items should have."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from evals.task import Answer, Item, Likelihood


def answer(*nats: float, greedy: bool = False) -> Answer:
    return Answer(likelihoods=tuple(Likelihood(nats=value, tokens=1, greedy=greedy) for value in nats))


def in_fair_order(items: Sequence[Item]) -> bool:
    keys = [hashlib.sha256(item.id.encode()).digest() for item in items]
    return keys == sorted(keys)
