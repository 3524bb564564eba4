"""How a sequence is fed so that every scored position attends the arm's own cache scheme, and the proof that it did.

"step": prefill all but the last `tail` tokens, convert, feed these one at a time; only they are scored. "served": the
same through the engine's executor, several sequences as rows beside each other, and a kept prefix out of its prefix
cache. This is what serving does.
"forward": the first token alone, convert, the rest in as few forwards as the chunk allows; all but the first are
scored. Cheap, and a different question: the rest attends itself within one forward, through the cache. A chunk that is
not cut so attends native keys of its own, and kv4 then looks hundreds of times better than it is.

Letters: L tokens fed, V vocabulary, N scored positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from engine import check_prefix, errors
from evals.gate import LeverNotApplied
from evals.kl import BadLogits
from oracles.client import Worker
from oracles.contract import GenerateProbe, Probe, StackConfig, Trace
from oracles.live import require_scheme, wanted_live

PROTOCOLS = ("step", "served", "forward")
Progress = Callable[[str, int, int | None], None]
# Bytes that warm rows may keep. No more than a group's prefixes are ever there.
PREFIX_ROOM = 1 << 40


class Arm(Protocol):
    """What is used of `oracles.client.Worker`."""

    def wait_ready(self) -> None: ...

    def probe(self, probe: Probe) -> Trace: ...

    def ask(self, probe: Probe | GenerateProbe) -> None: ...

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
    """One protocol at one size. `length`: tokens fed; the text's next token after each is its target. `group`:
    sequences that run as rows beside each other, with "served"."""

    protocol: str
    length: int
    tail: int = 32
    group: int = 1

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise errors.InvalidValue("protocol", self.protocol, PROTOCOLS)
        if self.length < 2:
            raise errors.InvalidValue("length", self.length, "an integer >= 2")
        if (self.protocol == "served") != (self.group > 1):
            raise errors.InvalidValue("group", self.group, "2 or more with the served protocol, 1 with the others")
        if self.protocol != "forward" and not 1 <= self.tail < self.length:
            raise errors.InvalidValue("tail", self.tail, f"1..{self.length - 1} (some tokens must be prefilled)")

    @property
    def rows(self) -> range:
        """The scored positions."""
        return range(1 if self.protocol == "forward" else self.length - self.tail, self.length)

    def probe(
        self,
        ids: Sequence[int],
        beside: Sequence[Sequence[int]] = (),
        *,
        prefix: int = 0,
        layers: bool = False,
        lens: bool = False,
    ) -> Probe:
        """The teacher-forced run of one sequence; beside: the others of its group, where it has one. prefix: tokens
        that come out of a kept state; layers, lens: the residual streams, and logits of them at the scored positions.
        """
        step = self.protocol != "forward"
        return Probe(
            token_ids=tuple(ids),
            head=0 if step else 1,
            tail=self.tail if step else 1,
            beside=tuple(map(tuple, beside)) if step else (),
            served=self.protocol == "served",
            prefix=prefix,
            want=("logits", "layers") if layers else ("logits",),
            lens=len(self.rows) if lens else 0,
        )

    def check_prefix(self, name: str, tokens: int) -> None:
        """Raise `InvalidValue` unless so many tokens can come out of a kept state."""
        if tokens and self.protocol == "forward":
            allowed = "only with the step protocol, or served: forward scores all but one position"
            raise errors.InvalidValue(name, tokens, allowed)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= self.rows.start:
            raise errors.InvalidValue(name, tokens, f"0..{self.rows.start} (the tokens before the scored ones)")

    def check_boundary(self, arm: StackConfig, tokens: int) -> None:
        """Raise `InvalidValue` unless an arm may keep a prefix of so many tokens; of its model only the config is read.

        Rows find what other prompts left at ends of their own chunks; a run by itself may be cut where
        `engine.check_prefix` allows it.
        """
        if self.protocol != "served":
            check_prefix(arm.model, kv=arm.kv, chunk=arm.chunk, tokens=tokens)
        elif tokens % arm.chunk and tokens != self.rows.start:
            allowed = f"a multiple of {arm.chunk} tokens, the chunk, or {self.rows.start}, all before the scored ones"
            raise errors.InvalidValue("prefix", tokens, allowed)

    def check_group(self, name: str, group: int | None) -> None:
        """Raise `InvalidValue` unless an arm may have so many rows beside each other; None: as the plan has."""
        if group is not None and (self.protocol != "served" or isinstance(group, bool) or group < 1):
            raise errors.InvalidValue(name, group, "1 or more, with the served protocol alone")

    def check_layers(self) -> None:
        """Raise `NotBuilt` where residual streams cannot be had."""
        if self.protocol == "served":
            raise errors.NotBuilt("layers with the served protocol", "use step or forward: rows keep no streams")

    def beside(self, i: int, sequences: Sequence[Sequence[int]], group: int = 0) -> list[Sequence[int]]:
        """What is fed of the other sequences of the group of sequence i; group: of an arm that has another one."""
        group = group or self.group
        first = i - i % group
        members = range(first, min(first + group, len(sequences)))
        return [sequences[k][: self.length] for k in members if k != i]

    def recut(self, ids: Sequence[int]) -> Probe:
        """The same tokens cut into other forwards, for the A/A floor of a native reference: one cut halfway."""
        half = max(1, self.length // 2 if self.protocol == "forward" else self.rows.start // 2)
        return replace(self.probe(ids), head=half, served=False)


def with_room(config: StackConfig, plan: Plan, warm: int) -> StackConfig:
    """The arm as it is started: rows that take a kept prefix need a prefix cache."""
    if not warm or plan.protocol != "served":
        return config
    return replace(config, levers=(*config.levers, ("prefix_cache", str(PREFIX_ROOM))))


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
    # Rows beside each other answer with the tail alone; the last sequence of all may have run by itself.
    kv_live, logits = trace.doc["kv_live"], trace.tensors["logits"]
    first = plan.rows.start if len(kv_live) == plan.length else 0
    live = kv_live[first : first + len(plan.rows)]
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

    if logits.ndim != 2 or logits.shape[0] != len(kv_live):
        raise BadLogits(f"{config.stack}: logits of shape {logits.shape} instead of [{len(kv_live)}, V]")
    return np.array(logits[first : first + len(plan.rows)].astype(mx.float32))
