"""How a sequence is fed so that every scored position attends the arm's own cache scheme, and the proof that it did.

"step": prefill all but the last `tail` tokens, convert, feed these one at a time; only they are scored. This is what
serving does. "forward": the first token alone, convert, the rest in as few forwards as the chunk allows; all but the
first are scored. Cheap, and a different question: the rest attends itself within one forward, through the cache.
A chunk that is not cut so attends native keys of its own, and kv4 then looks hundreds of times better than it is.

Letters: L tokens fed, V vocabulary, N scored positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from engine import errors
from evals.gate import LeverNotApplied
from evals.kl import BadLogits
from oracles.client import Worker
from oracles.contract import Probe, StackConfig, Trace
from oracles.live import require_scheme, wanted_live

PROTOCOLS = ("step", "forward")
Progress = Callable[[str, int, int | None], None]


class Arm(Protocol):
    """What is used of `oracles.client.Worker`."""

    def wait_ready(self) -> None: ...

    def probe(self, probe: Probe) -> Trace: ...

    def ask(self, probe: Probe) -> None: ...

    def answer(self) -> Trace: ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...


def start_worker(config: StackConfig) -> Arm:
    """A real worker, loading in the background; `wait_ready` says whether it could."""
    return Worker(config, wait=False)


@dataclass(frozen=True)
class Plan:
    """One protocol at one size. `length`: tokens fed; the text's next token after each is its target."""

    protocol: str
    length: int
    tail: int = 32

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise errors.InvalidValue("protocol", self.protocol, PROTOCOLS)
        if self.length < 2:
            raise errors.InvalidValue("length", self.length, "an integer >= 2")
        if self.protocol == "step" and not 1 <= self.tail < self.length:
            raise errors.InvalidValue("tail", self.tail, f"1..{self.length - 1} (some tokens must be prefilled)")

    @property
    def rows(self) -> range:
        """The scored positions."""
        return range(self.length - self.tail if self.protocol == "step" else 1, self.length)

    def probe(self, ids: Sequence[int]) -> Probe:
        """The teacher-forced run of one sequence."""
        if self.protocol == "step":
            return Probe(token_ids=tuple(ids), tail=self.tail)
        return Probe(token_ids=tuple(ids), head=1)

    def recut(self, ids: Sequence[int]) -> Probe:
        """The same tokens cut into other forwards, for the A/A floor of a native reference: one cut halfway."""
        return replace(
            self.probe(ids), head=max(1, self.rows.start // 2 if self.protocol == "step" else self.length // 2)
        )


def check_sequences(sequences: Sequence[Sequence[int]], plan: Plan) -> None:
    """Raise `errors.InvalidValue` unless each sequence has `plan.length` tokens and one more as the last target."""
    if not sequences:
        raise errors.InvalidValue("sequences", 0, "at least one")
    for i, ids in enumerate(sequences):
        if len(ids) != plan.length + 1:
            raise errors.InvalidValue(f"sequence {i}", f"{len(ids)} tokens", f"{plan.length} + 1, the last a target")


def targets(ids: Sequence[int], plan: Plan) -> np.ndarray:
    """The text's next token after each scored position [N]."""
    return np.asarray([ids[j + 1] for j in plan.rows], dtype=np.int64)


def scored_logits(trace: Trace, config: StackConfig, plan: Plan, sequence: int) -> np.ndarray:
    """The logits of the scored positions [N, V] in fp32.

    Raises `LeverNotApplied` if one of them attended another scheme than `config.kv` asks for, `SchemeNotLive` if the
    caches at the end are not of it, `BadLogits` for another shape.
    """
    wanted = wanted_live(config.kv, trace.doc["caches"])
    live = [trace.doc["kv_live"][j] for j in plan.rows]
    wrong = [(j, found) for j, found in zip(plan.rows, live, strict=True) if found not in wanted]
    if wrong:
        counted = len(live) - len(wrong)
        raise LeverNotApplied(
            f"lever not applied: {config.stack} kv={config.kv}, sequence {sequence}, position {wrong[0][0]} attended "
            f"{wrong[0][1]!r} instead of {' or '.join(map(repr, wanted))}; {counted} of {len(live)} scored positions "
            f"count ({100 * counted / len(live):.1f} %)"
        )
    require_scheme(trace, config.kv)
    import mlx.core as mx

    logits = trace.tensors["logits"]
    if logits.ndim != 2 or logits.shape[0] != plan.length:
        raise BadLogits(f"{config.stack}: logits of shape {logits.shape} instead of [{plan.length}, V]")
    return np.array(logits[plan.rows.start : plan.rows.stop].astype(mx.float32))
