"""KL of KV schemes against a reference, on the path that is served, for any stack.

Every arm runs in a process of its own. Sequences stream through all arms side by side, and of each only the scored rows
are kept until the next: memory does not grow with the number of sequences.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from engine import errors, parse_kv
from evals.kl import PositionScores, score_positions
from evals.protocol import Arm, Plan, Progress, check_sequences, scored_logits, start_worker, targets
from evals.report import KLReport, floor_report, kl_report
from evals.stored import Full, StoredReference
from oracles.contract import StackConfig, Trace

FLOOR_SEQUENCES = 4
WORST, CONTEXT = 5, 12


@dataclass(frozen=True)
class Worst:
    """One position of the largest KL, in nats. context: the token ids up to it, and the next one, its target."""

    sequence: int
    position: int
    kl: float
    context: tuple[int, ...]


@dataclass(frozen=True)
class FidelityResult:
    """One candidate against the reference.

    `*_live`: the scheme of the live caches after a sequence; `*_kv_bytes`: their bytes there, at `plan.length` tokens.
    `kl_by_domain`: mean KL in nats; `kl_by_position`: of each scored position, over the sequences; `worst`: the
    positions of the largest KL. `left_out`: how much a stored reference's KL falls short, in nats, None for a live one.
    `ids_sha256` names the token ids; `corpus_sha256` the text set, if it is one.
    `seconds`: of the whole run, all candidates together.
    """

    plan: Plan
    reference: StackConfig
    candidate: StackConfig
    reference_live: str
    candidate_live: str
    reference_kv_bytes: int
    candidate_kv_bytes: int
    report: KLReport
    kl_by_domain: Mapping[str, float]
    kl_by_position: tuple[float, ...]
    worst: tuple[Worst, ...]
    machine: str
    versions: Mapping[str, str]
    ids_sha256: str
    corpus_sha256: str | None
    seconds: float
    left_out: float | None = None

    @property
    def reference_token_bytes(self) -> float:
        """Bytes of the reference's live caches, slack and rings included, over the tokens that were fed."""
        return self.reference_kv_bytes / self.plan.length

    @property
    def candidate_token_bytes(self) -> float:
        """The same of the candidate's."""
        return self.candidate_kv_bytes / self.plan.length

    @property
    def lever(self) -> str:
        """What was measured, as it was found live."""
        start = parse_kv(self.candidate.kv).start
        return f"{self.candidate.stack} {self.candidate.kv} (start {start}, live {self.candidate_live})"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "lever": self.lever,
            "kv_start": parse_kv(self.candidate.kv).start,
            "reference_token_bytes": self.reference_token_bytes,
            "candidate_token_bytes": self.candidate_token_bytes,
        }


def ids_digest(sequences: Sequence[Sequence[int]]) -> str:
    """sha256 of the token ids."""
    return hashlib.sha256(json.dumps([list(map(int, ids)) for ids in sequences]).encode()).hexdigest()


def run_fidelity(
    reference: StackConfig | StoredReference,
    candidates: Sequence[StackConfig],
    sequences: Sequence[Sequence[int]],
    *,
    protocol: str = "step",
    tail: int = 32,
    group: int = 1,
    floor_sequences: int = FLOOR_SEQUENCES,
    labels: Sequence[str] | None = None,
    corpus_sha256: str | None = None,
    progress: Progress | None = None,
    start: Callable[[StackConfig], Arm] = start_worker,
) -> list[FidelityResult]:
    """KL(reference || candidate) of each candidate over the same sequences, in the candidates' order. A stored
    reference must be of these sequences and this protocol.

    sequences: token ids, all of one length; the last token of each is only a target. protocol, tail: see
    `evals.protocol`. floor_sequences: how many of them the A/A floor repeats (native reference only; 0 for none).
    labels: the domain of each sequence. Everything that can be refused is refused before the first sequence runs.

    Raises `LeverNotApplied` (a scored position attended another scheme: the whole run is invalid), `OracleRefused`,
    `OracleCrashed`, `BadLogits`, `NegativeKL`, `errors.InvalidValue`.
    """
    began = time.monotonic()
    if not candidates:
        raise errors.InvalidValue("candidates", 0, "at least one")
    if not sequences:
        raise errors.InvalidValue("sequences", 0, "at least one")
    if labels is not None and len(labels) != len(sequences):
        raise errors.InvalidValue("labels", len(labels), f"one for each of the {len(sequences)} sequences")
    if floor_sequences < 0:
        raise errors.InvalidValue("floor_sequences", floor_sequences, "an integer >= 0")
    plan = Plan(protocol, len(sequences[0]) - 1, tail, group)
    check_sequences(sequences, plan)
    stored = reference if isinstance(reference, StoredReference) else None
    config = reference.config if isinstance(reference, StoredReference) else reference
    for each in (config, *candidates):
        parse_kv(each.kv)
    if stored is not None:
        stored.check(plan, ids_digest(sequences))
    repeats = min(floor_sequences, len(sequences)) if parse_kv(config.kv).kind == "native" and stored is None else 0
    configs = (*(() if stored else (config,)), *candidates)
    with ExitStack() as stack:
        arms = [stack.enter_context(start(each)) for each in configs]
        for arm in arms:
            arm.wait_ready()
        run = _Run(plan, configs, arms, stored, progress or _silent, len(sequences) * len(arms) + repeats)
        for i, ids in enumerate(sequences):
            run.sequence(i, ids, plan.beside(i, sequences), repeat=i < repeats)
    seconds = time.monotonic() - began
    total = len(sequences) * len(plan.rows)
    floor = floor_report(run.floor) if run.floor else None
    return [
        FidelityResult(
            plan=plan,
            reference=config,
            candidate=candidate,
            reference_live=run.base["kv_status"],
            candidate_live=trace.doc["kv_status"],
            reference_kv_bytes=run.base["kv_bytes"],
            candidate_kv_bytes=_kv_bytes(trace),
            report=kl_report(parts, total=total, floor=floor),
            kl_by_domain={} if labels is None else _by_label(parts, labels),
            kl_by_position=tuple(np.stack([part.kl for part in parts]).mean(axis=0).tolist()),
            worst=_worst(parts, plan, sequences),
            machine=trace.doc["machine"],
            versions=dict(trace.doc["versions"]),
            ids_sha256=ids_digest(sequences),
            corpus_sha256=corpus_sha256,
            seconds=seconds,
            left_out=left_out,
        )
        for candidate, trace, parts, left_out in zip(
            candidates, run.traces[-len(candidates) :], run.parts, run.left_out, strict=True
        )
    ]


class _Run:
    """The state of one run: what has been scored so far. `traces` holds each arm's last answer without its arrays. The
    first arm is the reference, unless that is `stored`."""

    def __init__(
        self,
        plan: Plan,
        configs: Sequence[StackConfig],
        arms: Sequence[Arm],
        stored: StoredReference | None,
        progress: Progress,
        work: int,
    ) -> None:
        self.plan, self.configs, self.arms, self.stored = plan, configs, arms, stored
        self.progress, self.work, self.done = progress, work, 0
        self.traces: list[Trace] = [Trace({}, {}) for _ in arms]
        self.first = 0 if stored else 1  # of the candidates
        self.parts: list[list[PositionScores]] = [[] for _ in arms[self.first :]]
        self.left_out: list[float | None] = [None for _ in self.parts]
        self.floor: list[PositionScores] = []

    @property
    def base(self) -> Mapping[str, Any]:
        """The reference's live scheme and bytes."""
        if self.stored is not None:
            return self.stored.about
        return {"kv_status": self.traces[0].doc["kv_status"], "kv_bytes": _kv_bytes(self.traces[0])}

    def sequence(self, i: int, ids: Sequence[int], beside: Sequence[Sequence[int]], *, repeat: bool) -> None:
        """Feed one sequence to all arms at the same time and score what comes back.

        A decode step keeps less than one core busy, so that arms which run together cost little more than one.
        """
        fed, goal = ids[: self.plan.length], targets(ids, self.plan)
        for arm in self.arms:
            arm.ask(self.plan.probe(fed, beside))
        full = self._reference(i)
        if repeat:
            self.arms[0].ask(self.plan.recut(fed))
        for k, parts in enumerate(self.parts):
            rows = self._rows(self.first + k, i)
            parts.append(score_positions(full(rows), rows, goal))
            if self.stored is not None and i == 0:
                self.left_out[k] = self.stored.left_out(rows)
        if repeat:
            rows = self._rows(0, i)
            self.floor.append(score_positions(full(rows), rows, goal))

    def _reference(self, i: int) -> Full:
        """The reference's logits of a sequence, by a candidate's."""
        if self.stored is not None:
            return self.stored.full(i)
        rows = self._rows(0, i)
        return lambda _candidate: rows

    def _rows(self, arm: int, i: int) -> np.ndarray:
        """The scored rows of the probe that `arm` was asked last."""
        self.progress("KL", self.done, self.work)
        trace = self.arms[arm].answer()
        rows = scored_logits(trace, self.configs[arm], self.plan, i)
        self.traces[arm] = replace(trace, tensors={})
        self.done += 1
        self.progress("KL", self.done, self.work)
        return rows


def _silent(label: str, done: int, total: int | None) -> None:
    """No progress is shown."""


def _kv_bytes(trace: Trace) -> int:
    return sum(int(cache["kv_bytes"]) for cache in trace.doc["caches"])


def _worst(parts: Sequence[PositionScores], plan: Plan, sequences: Sequence[Sequence[int]]) -> tuple[Worst, ...]:
    """The positions of the largest KL, with the tokens before and after them."""
    found = [
        (float(kl), -i, -position)
        for i, part in enumerate(parts)
        for position, kl in zip(plan.rows, part.kl, strict=True)
    ]
    places = [(kl, -i, -position) for kl, i, position in sorted(found, reverse=True)[:WORST]]
    return tuple(Worst(i, at, kl, tuple(sequences[i][max(at - CONTEXT, 0) : at + 2])) for kl, i, at in places)


def _by_label(parts: Sequence[PositionScores], labels: Sequence[str]) -> dict[str, float]:
    names = dict.fromkeys(labels)
    return {
        name: float(np.concatenate([p.kl for p, label in zip(parts, labels, strict=True) if label == name]).mean())
        for name in names
    }
