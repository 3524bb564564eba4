"""The gate of an experiment on a sampler: its own quality, for a KL of logits says nothing where logits are equal.

Teacher-forced over the frozen texts, each arm's sampler makes a distribution q of the model's own p at every position.
Two samplers are compared at equal diversity budget only: their mean entropies H(q) must match, else the gate is
undecided, whatever was measured. Then the price: the mean of E_q[-ln p], how unlikely to the model what is drawn is,
may be above the base's by `excess_nats` at most. Both in nats a token, with a bootstrap over sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import SamplingParams, load_tokenizer, sampling_logprobs
from evals import corpus
from evals.bootstrap import Interval, interval_by_sequence
from lab.config import LabConf
from lab.fidelity import FidelityRun, Progress
from lab.judge import document
from oracles.client import Worker
from oracles.contract import Probe, StackConfig

PROTOCOL = "sampler"


@dataclass(frozen=True)
class Spread:
    """Of one arm, a number a sequence: the mean entropy of what is drawn from, and the mean E_q[-ln p]. nats."""

    entropy: tuple[float, ...]
    surprise: tuple[float, ...]


def spread_of(logits: Any, sampling: Mapping[str, Any]) -> tuple[float, float]:
    """(mean entropy, mean surprise) over the rows of logits [L, V]."""
    import mlx.core as mx

    plain = np.asarray((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).astype(mx.float32), np.float64)
    drawn = np.asarray(sampling_logprobs(logits, SamplingParams(**sampling)), np.float64)
    weights = np.exp(drawn)
    held = weights > 0
    entropy = -np.where(held, weights * np.where(held, drawn, 0.0), 0.0).sum(axis=1)
    surprise = -np.where(held, weights * np.where(held, plain, 0.0), 0.0).sum(axis=1)
    return float(entropy.mean()), float(surprise.mean())


def judge_spreads(base: Spread, candidate: Spread, match: float, excess: float) -> tuple[str, str, Interval]:
    """(status, why, the extra surprise with its 95 % interval). match: relative difference of the mean entropies."""
    means = [float(np.mean(arm.entropy)) for arm in (base, candidate)]
    apart = means[1] / means[0] - 1
    sums = np.asarray(candidate.surprise) - np.asarray(base.surprise)  # all sequences are of one length
    extra = interval_by_sequence(sums, np.ones(len(sums)))
    words = f"entropy {means[0]:.4f} and {means[1]:.4f} nats ({100 * apart:+.2f} %, at most {100 * match:.0f} % apart)"
    high = extra.value if extra.high is None else extra.high
    words += f"; extra surprise {extra.value:+.4f} nats, upper bound {high:+.4f}, at most {excess:g}"
    if abs(apart) > match:
        return "UNDECIDED", f"not matched: {words}", extra
    return ("PASS" if high <= excess else "FAIL"), words, extra


def run_sampler_gate(
    conf: LabConf, model: Path, base: StackConfig, candidate: StackConfig, progress: Progress
) -> list[FidelityRun]:
    """The gate over the texts of the profile's first KL run. One worker is enough: both arms have the same logits."""
    sizes = conf.profile.kl[0]
    texts = corpus.joined(load_tokenizer(model), sizes.sequences, sizes.length)
    found: dict[str, list[tuple[float, float]]] = {"base": [], "candidate": []}
    with Worker(base) as worker:
        for done, ids in enumerate(texts):
            progress("sampler gate", done, len(texts))
            logits = worker.probe(Probe(token_ids=tuple(ids))).tensors["logits"]
            for role, arm in (("base", base), ("candidate", candidate)):
                found[role].append(spread_of(logits, dict(arm.sampling)))
    progress("sampler gate", len(texts), len(texts))
    spreads = [_spread(found[role]) for role in ("base", "candidate")]
    limits = conf.thresholds
    status, why, extra = judge_spreads(spreads[0], spreads[1], limits.entropy_match, limits.excess_nats)
    total = sizes.sequences * sizes.length
    arms = {role: document(spread) for role, spread in zip(found, spreads, strict=True)}
    run = FidelityRun(
        protocol=PROTOCOL,
        status=status,
        may_be_default=True,
        kl_mean=extra.value,
        kl_max=max(b - a for a, b in zip(spreads[0].surprise, spreads[1].surprise, strict=True)),
        counted=total,
        total=total,
        corpus_sha256=corpus.SHA256,
        reasons=(why,),
        document={"arms": arms, "extra": document(extra)},
    )
    return [run]


def _spread(rows: Sequence[tuple[float, float]]) -> Spread:
    entropy, surprise = zip(*rows, strict=True)
    return Spread(tuple(entropy), tuple(surprise))
