"""A reference kept in a file, for models of which only one fits at a time: per position the likeliest tokens and what
is left to all others.

KL against it adds the others up to one, which gives at most the true KL. How much it leaves out is measured with every
candidate on the first sequence, whose logits are kept whole.

Letters: S sequences, N scored positions of each, K tokens kept, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from engine import errors
from evals.kl import kl_divergence, log_softmax
from evals.protocol import Arm, Plan, Progress, check_sequences, scored_logits, start_worker, targets
from oracles.contract import StackConfig

KEPT = 512
FORMAT = 1
Full = Callable[[np.ndarray], np.ndarray]  # a candidate's logits [N, V] -> the reference's, as far as they are known


@dataclass(frozen=True, kw_only=True)
class StoredReference:
    """ids [S, N, K], logprobs [S, N, K], tails [S, N] (log of what the others have), first [N, V] logits of sequence 0.

    about: the reference's config, live scheme, bytes, machine and versions, the plan, and the sha256 of the token ids.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    tails: np.ndarray
    first: np.ndarray
    about: Mapping[str, Any]

    @property
    def config(self) -> StackConfig:
        return StackConfig(**{**self.about["config"], "levers": tuple(map(tuple, self.about["config"]["levers"]))})

    def check(self, plan: Plan, ids_sha256: str) -> None:
        """Raise `errors.InvalidValue` unless it was made of the same token ids under the same protocol."""
        for name, asked in (("plan", asdict(plan)), ("ids_sha256", ids_sha256)):
            if self.about[name] != asked:
                raise errors.InvalidValue(f"--reference-file {name}", self.about[name], f"what is asked for: {asked}")

    def full(self, sequence: int) -> Full:
        """The logits of a sequence, the others in the proportions of the candidate that they are compared with."""
        ids, logprobs, tails = self.ids[sequence], self.logprobs[sequence], self.tails[sequence]
        return lambda candidate: expand(ids, logprobs, tails, candidate)

    def left_out(self, candidate: np.ndarray) -> float:
        """By how much the mean KL (nats) of sequence 0 falls short of the true one, for a candidate's logits of it."""
        exact = kl_divergence(self.first, candidate)
        return float(exact.mean() - kl_divergence(self.full(0)(candidate), candidate).mean())


def expand(ids: np.ndarray, logprobs: np.ndarray, tails: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Log-probabilities [N, V]: those of `ids` [N, K] as given, the others' shares of `tails` [N] as a candidate's
    logits [N, V] have them."""
    rows = log_softmax(candidate)
    others = np.exp(rows)
    np.put_along_axis(others, ids, 0.0, axis=1)
    rows = rows + (tails - np.log(others.sum(axis=1)))[:, None]
    np.put_along_axis(rows, ids, logprobs, axis=1)
    return rows


def keep(logits: np.ndarray, goal: np.ndarray, count: int = KEPT) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `count` likeliest ids of logits [N, V], the text's own next token `goal` [N] always among them, their
    log-probabilities, and the log of what the others have."""
    logprobs = log_softmax(logits)
    count = min(count, logits.shape[1] - 1)
    ranked = logprobs.copy()
    np.put_along_axis(ranked, goal[:, None], np.inf, axis=1)
    ids = np.sort(np.argpartition(ranked, -count, axis=1)[:, -count:], axis=1)
    kept = np.take_along_axis(logprobs, ids, axis=1)
    others = np.exp(logprobs)
    np.put_along_axis(others, ids, 0.0, axis=1)
    return ids.astype(np.int32), kept, np.log(others.sum(axis=1))


def store_reference(
    config: StackConfig,
    sequences: Sequence[Sequence[int]],
    path: Path,
    *,
    plan: Plan,
    ids_sha256: str,
    progress: Progress,
    start: Callable[[StackConfig], Arm] = start_worker,
) -> None:
    """Run the reference over all sequences and write it to `path`. Raises what `evals.fidelity.run_fidelity` raises."""
    check_sequences(sequences, plan)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    first = np.zeros((0, 0), np.float32)
    with start(config) as arm:
        arm.wait_ready()
        for i, ids in enumerate(sequences):
            progress("reference", i, len(sequences))
            trace = arm.probe(plan.probe(ids[: plan.length], plan.beside(i, sequences)))
            logits = scored_logits(trace, config, plan, i)
            first = logits if i == 0 else first
            parts.append(keep(logits, targets(ids, plan)))
        progress("reference", len(sequences), len(sequences))
    about = {
        "format": FORMAT,
        "config": asdict(config),
        "plan": asdict(plan),
        "ids_sha256": ids_sha256,
        "kv_status": trace.doc["kv_status"],
        "kv_bytes": sum(int(cache["kv_bytes"]) for cache in trace.doc["caches"]),
    }
    stacked = [np.stack(column) for column in zip(*parts, strict=True)]
    arrays = {"ids": stacked[0], "logprobs": stacked[1].astype(np.float32), "tails": stacked[2].astype(np.float32)}
    save_file(arrays | {"first": first}, path, metadata={"about": json.dumps(about)})


def read_reference(path: Path) -> StoredReference:
    """Raises `errors.CorruptFile` for what is no such file."""
    try:
        with safe_open(path, framework="np") as opened:
            about = json.loads((opened.metadata() or {})["about"])
            arrays = {name: opened.get_tensor(name) for name in ("ids", "logprobs", "tails", "first")}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise errors.CorruptFile(path, f"is no stored reference: {error!r}") from error
    if about.get("format") != FORMAT:
        raise errors.CorruptFile(path, f"format {about.get('format')}, this version reads {FORMAT}")
    wide = {name: arrays[name].astype(np.float64) for name in ("logprobs", "tails")}
    return StoredReference(ids=arrays["ids"].astype(np.int64), **wide, first=arrays["first"], about=about)
