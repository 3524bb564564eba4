"""Teacher-forced perplexity of one arm: exp of the mean negative log-likelihood of the text's own next tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import errors, parse_kv
from evals.bootstrap import Interval, interval_by_sequence
from evals.kl import BadLogits, token_nll
from evals.protocol import Arm, Plan, Progress, check_sequences, scored_logits, start_worker, targets, with_room
from oracles.contract import StackConfig


@dataclass(frozen=True)
class PerplexityResult:
    """`perplexity` over all scored positions with its interval by sequence; `nll_by_sequence`: means in nats. `warm`:
    tokens of each sequence that came out of a kept state."""

    plan: Plan
    config: StackConfig
    live: str
    perplexity: Interval
    nll_by_sequence: tuple[float, ...]
    scored: int
    machine: str
    versions: Mapping[str, str]
    seconds: float
    warm: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_perplexity(
    config: StackConfig,
    sequences: Sequence[Sequence[int]],
    *,
    protocol: str = "forward",
    tail: int = 32,
    group: int = 1,
    warm: int = 0,
    progress: Progress | None = None,
    start: Callable[[StackConfig], Arm] = start_worker,
) -> PerplexityResult:
    """Perplexity of `config` on token ids of one length, the last token of each only a target. protocol, tail, group:
    see `evals.protocol`; warm: so many tokens of each sequence come out of a kept state.

    The log-softmax is float64 over fp32 logits. Only positions that attended the asked KV scheme are scored, else
    `LeverNotApplied`; raises further what `evals.fidelity.run_fidelity` raises.
    """
    began = time.monotonic()
    if not sequences:
        raise errors.InvalidValue("sequences", 0, "at least one")
    plan = Plan(protocol, len(sequences[0]) - 1, tail, group)
    check_sequences(sequences, plan)
    plan.check_prefix("warm", warm)
    if warm and config.stack != "engine":
        raise errors.InvalidValue("warm", config.stack, "the stack 'engine' alone")
    parse_kv(config.kv)
    nlls: list[np.ndarray] = []
    with start(with_room(config, plan, warm)) as arm:
        arm.wait_ready()
        for i, ids in enumerate(sequences):
            trace = arm.probe(plan.probe(ids[: plan.length], plan.beside(i, sequences), prefix=warm))
            rows = scored_logits(trace, config, plan, i)
            if not np.isfinite(rows).all():
                raise BadLogits(f"{config.stack}: logits of sequence {i} are not finite")
            nlls.append(token_nll(rows, targets(ids, plan)))
            if progress is not None:
                progress("perplexity", i + 1, len(sequences))
        counts = np.asarray([len(nll) for nll in nlls])
        mean = interval_by_sequence(np.asarray([nll.sum() for nll in nlls]), counts)
        return PerplexityResult(
            plan=plan,
            config=config,
            live=trace.doc["kv_status"],
            perplexity=mean.map(math.exp),
            nll_by_sequence=tuple(float(nll.mean()) for nll in nlls),
            scored=int(counts.sum()),
            machine=trace.doc["machine"],
            versions=dict(trace.doc["versions"]),
            seconds=time.monotonic() - began,
            warm=warm,
        )
