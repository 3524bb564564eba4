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
from evals.bootstrap import Interval
from evals.breakdown import Span, Worst, by_label, by_span, worst_positions
from evals.free_running import FreeRunning, Parting, free_probe, free_running, part
from evals.kl import PositionScores, score_positions
from evals.layers import LayerResult, LayerScores, Streams, layer_results, score_layers
from evals.protocol import Arm, Plan, Progress, check_sequences, scored_logits, start_worker, targets, with_room
from evals.report import KLReport, floor_report, kl_report
from evals.stored import Full, StoredReference
from oracles.contract import StackConfig, Trace
from oracles.live import require_scheme

FLOOR_SEQUENCES = 4


@dataclass(frozen=True)
class FidelityResult:
    """One candidate against the reference.

    `*_live`: the scheme of the live caches after a sequence; `*_kv_bytes`: their bytes there, at `plan.length` tokens.
    `*_warm`: tokens of each sequence that came out of a kept state, 0 where an arm ran cold. `candidate_group`: rows
    that it ran beside each other, where they were not the reference's number.
    `kl_by_domain`: mean KL in nats; `kl_by_position`: of each scored position, over the sequences, and `kl_by_span` of
    runs of them; `worst`: the positions of the largest KL; `layers`: the error after each layer, if asked for.
    `free`: where greedy generations part, if asked for. `left_out`: how much a stored reference's KL falls short, in
    nats, None for a live one.
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
    kl_by_domain: Mapping[str, Interval]
    kl_by_position: tuple[float, ...]
    kl_by_span: tuple[Span, ...]
    worst: tuple[Worst, ...]
    machine: str
    versions: Mapping[str, str]
    ids_sha256: str
    corpus_sha256: str | None
    seconds: float
    left_out: float | None = None
    layers: tuple[LayerResult, ...] = ()
    reference_warm: int = 0
    candidate_warm: int = 0
    free: FreeRunning | None = None
    candidate_group: int | None = None

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
        how = f", {self.candidate_warm} tokens out of a kept state" if self.candidate_warm else ""
        how += f", {self.candidate_group} rows at a time" if self.candidate_group else ""
        return f"{self.candidate.stack} {self.candidate.kv} (start {start}, live {self.candidate_live}{how})"

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
    candidate_group: int | None = None,
    floor_sequences: int = FLOOR_SEQUENCES,
    labels: Sequence[str] | None = None,
    corpus_sha256: str | None = None,
    layers: bool = False,
    lens: bool = False,
    reference_warm: int = 0,
    candidate_warm: int = 0,
    free: int = 0,
    progress: Progress | None = None,
    start: Callable[[StackConfig], Arm] = start_worker,
) -> list[FidelityResult]:
    """KL(reference || candidate) of each candidate over the same sequences, in the candidates' order. A stored
    reference must be of these sequences and this protocol.

    sequences: token ids, all of one length; the last token of each is only a target. protocol, tail, group: see
    `evals.protocol`; candidate_group: of the candidates, where it is another. floor_sequences: how many of them the A/A
    floor repeats (native reference only; 0 for none). labels: the domain of each sequence. layers: compare the arms'
    residual streams too; lens: and what the final norm and the head make of them, see `evals.layers`. reference_warm,
    candidate_warm: tokens of each sequence that an arm takes out of a kept state ("warm"); its scheme must allow that
    boundary. free: so many tokens each arm also generates by itself, behind what is prefilled. Everything that can be
    refused is refused before the first sequence runs.

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
    plan.check_prefix("reference_warm", reference_warm)
    plan.check_prefix("candidate_warm", candidate_warm)
    plan.check_group("candidate_group", candidate_group)
    stored = reference if isinstance(reference, StoredReference) else None
    if lens and not layers:
        raise errors.InvalidValue("lens", lens, "only together with layers")
    if isinstance(free, bool) or not isinstance(free, int) or free < 0:
        raise errors.InvalidValue("free", free, "an integer >= 0")
    if free and (protocol != "step" or stored is not None):
        raise errors.InvalidValue("free", free, "only with the step protocol and a reference that runs")
    if free and (reference_warm or candidate_warm):
        raise errors.InvalidValue("free", free, "only with cold arms")
    config = reference.config if isinstance(reference, StoredReference) else reference
    for arm_prefix, each in ((reference_warm, config), *((candidate_warm, each) for each in candidates)):
        if (lens or arm_prefix) and each.stack != "engine":
            raise errors.InvalidValue("lens/prefix", each.stack, "the stack 'engine' alone")
    if layers:
        plan.check_layers()
        if stored is not None:
            raise errors.InvalidValue("layers", layers, "a reference that runs: a stored one keeps no streams")
    if reference_warm and stored is not None:
        raise errors.InvalidValue("reference_warm", reference_warm, "0 for a stored reference")
    for each in (config, *candidates):
        parse_kv(each.kv)
    if stored is not None:
        stored.check(plan, ids_digest(sequences))
    repeats = min(floor_sequences, len(sequences)) if parse_kv(config.kv).kind == "native" and stored is None else 0
    configs = (*(() if stored else (config,)), *candidates)
    warm = (*(() if stored else (reference_warm,)), *(candidate_warm for _ in candidates))
    with ExitStack() as stack:
        started = [with_room(each, plan, tokens) for each, tokens in zip(configs, warm, strict=True)]
        arms = [stack.enter_context(start(each)) for each in started]
        for arm in arms:
            arm.wait_ready()
        work = len(sequences) * len(arms) * (2 if free else 1) + repeats
        run = _Run(plan, configs, arms, stored, _Asked(layers, lens, warm, free), progress or _silent, work)
        for i, ids in enumerate(sequences):
            theirs = plan.beside(i, sequences, candidate_group or group)
            run.sequence(i, ids, plan.beside(i, sequences), theirs, repeat=i < repeats)
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
            kl_by_domain={} if labels is None else by_label([part.kl for part in parts], labels),
            kl_by_position=tuple(np.stack([part.kl for part in parts]).mean(axis=0).tolist()),
            kl_by_span=by_span([part.kl for part in parts], plan.rows),
            worst=worst_positions(parts, plan, sequences),
            machine=trace.doc["machine"],
            versions=dict(trace.doc["versions"]),
            ids_sha256=ids_digest(sequences),
            corpus_sha256=corpus_sha256,
            seconds=seconds,
            left_out=left_out,
            layers=layer_results(streams, labels) if layers else (),
            reference_warm=reference_warm,
            candidate_warm=candidate_warm,
            free=free_running(partings, free) if free else None,
            candidate_group=candidate_group,
        )
        for candidate, trace, parts, left_out, streams, partings in zip(
            candidates, run.traces[-len(candidates) :], run.parts, run.left_out, run.layers, run.partings, strict=True
        )
    ]


@dataclass(frozen=True)
class _Asked:
    """What is asked of the arms beside logits. prefixes: of each arm; free: tokens that each generates by itself."""

    layers: bool
    lens: bool
    prefixes: tuple[int, ...]
    free: int


class _Run:
    """The state of one run: what has been scored so far. `traces` holds each arm's last answer without its arrays. The
    first arm is the reference, unless that is `stored`."""

    def __init__(
        self,
        plan: Plan,
        configs: Sequence[StackConfig],
        arms: Sequence[Arm],
        stored: StoredReference | None,
        asked: _Asked,
        progress: Progress,
        work: int,
    ) -> None:
        self.plan, self.configs, self.arms, self.stored, self.asked = plan, configs, arms, stored, asked
        self.progress, self.work, self.done = progress, work, 0
        self.traces: list[Trace] = [Trace({}, {}) for _ in arms]
        self.first = 0 if stored else 1  # of the candidates
        self.parts: list[list[PositionScores]] = [[] for _ in arms[self.first :]]
        self.layers: list[list[LayerScores]] = [[] for _ in self.parts]
        self.partings: list[list[Parting]] = [[] for _ in self.parts]
        self.left_out: list[float | None] = [None for _ in self.parts]
        self.floor: list[PositionScores] = []

    @property
    def base(self) -> Mapping[str, Any]:
        """The reference's live scheme and bytes."""
        if self.stored is not None:
            return self.stored.about
        return {"kv_status": self.traces[0].doc["kv_status"], "kv_bytes": _kv_bytes(self.traces[0])}

    def sequence(
        self,
        i: int,
        ids: Sequence[int],
        beside: Sequence[Sequence[int]],
        theirs: Sequence[Sequence[int]],
        *,
        repeat: bool,
    ) -> None:
        """Feed one sequence to all arms at the same time and score what comes back. beside, theirs: the rows beside it
        in the reference and in the candidates.

        A decode step keeps less than one core busy, so that arms which run together cost little more than one.
        """
        fed, goal = ids[: self.plan.length], targets(ids, self.plan)
        how = {"layers": self.asked.layers, "lens": self.asked.lens}
        for k, (arm, prefix) in enumerate(zip(self.arms, self.asked.prefixes, strict=True)):
            near = beside if k < self.first else theirs
            arm.ask(self.plan.probe(fed, near, prefix=prefix, **how))
        full, streams = self._reference(i)
        if repeat:
            self.arms[0].ask(self.plan.recut(fed))
        for k, parts in enumerate(self.parts):
            trace, rows = self._answer(self.first + k, i)
            parts.append(score_positions(full(rows), rows, goal))
            if streams is not None:
                self.layers[k].append(score_layers(streams, Streams.of(trace, self.plan)))
            if self.stored is not None and i == 0:
                self.left_out[k] = self.stored.left_out(rows)
        if repeat:
            _, rows = self._answer(0, i)
            self.floor.append(score_positions(full(rows), rows, goal))
        if self.asked.free:
            self._let_run(fed[: self.plan.rows.start])

    def _let_run(self, prompt: Sequence[int]) -> None:
        """Have every arm go on by itself, and keep where each candidate leaves the reference."""
        for arm in self.arms:
            arm.ask(free_probe(prompt, self.asked.free))
        traces = []
        for arm, config in zip(self.arms, self.configs, strict=True):
            traces.append(arm.answer())
            require_scheme(traces[-1], config.kv)
            self.done += 1
            self.progress("KL", self.done, self.work)
        for partings, trace in zip(self.partings, traces[1:], strict=True):
            partings.append(part(traces[0], trace))

    def _reference(self, i: int) -> tuple[Full, Streams | None]:
        """The reference's logits of a sequence, by a candidate's, and its streams where they were asked for."""
        if self.stored is not None:
            return self.stored.full(i), None
        trace, rows = self._answer(0, i)
        return lambda _candidate: rows, Streams.of(trace, self.plan) if self.asked.layers else None

    def _answer(self, arm: int, i: int) -> tuple[Trace, np.ndarray]:
        """What came of the probe that `arm` was asked last, and its scored rows."""
        self.progress("KL", self.done, self.work)
        trace = self.arms[arm].answer()
        rows = scored_logits(trace, self.configs[arm], self.plan, i)
        self.traces[arm] = replace(trace, tensors={})
        self.done += 1
        self.progress("KL", self.done, self.work)
        return trace, rows


def _silent(label: str, done: int, total: int | None) -> None:
    """No progress is shown."""


def _kv_bytes(trace: Trace) -> int:
    return sum(int(cache["kv_bytes"]) for cache in trace.doc["caches"])
