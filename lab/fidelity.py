"""The KL gate of an experiment: runs `evals` on the arms as configured and turns the answer into one gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.config import KLConf, LabConf
from lab.decide import Gate
from lab.judge import combine_gates, document
from oracles.contract import StackConfig

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class FidelityRun:
    """One KL run: `document` has every number, `status` the class's PASS, FAIL or UNDECIDED."""

    protocol: str
    status: str
    may_be_default: bool
    kl_mean: float
    kl_max: float
    counted: int
    total: int
    corpus_sha256: str
    reasons: tuple[str, ...]
    document: dict[str, Any]

    @property
    def words(self) -> str:
        return (
            f"{self.status}, mean {self.kl_mean:.2e} nats over {self.counted}/{self.total} positions "
            f"({self.protocol}); {'; '.join(self.reasons)}"
        )


def gate_of(runs: Sequence[FidelityRun]) -> Gate:
    """All runs as one gate."""
    return combine_gates([run.status for run in runs])


def kl_seconds(run: KLConf, prefill_tok_s: float, decode_tok_s: float) -> float:
    """Forecast of one KL run of two arms from a pilot's speeds."""
    steps = run.tail if run.protocol == "step" else 1
    return 2 * run.sequences * ((run.length - steps) / prefill_tok_s + steps / decode_tok_s)


def run_kl_gate(
    conf: LabConf, model: Path, base: StackConfig, candidate: StackConfig, progress: Progress
) -> list[FidelityRun]:
    """Every KL run of the profile. The base is the reference.

    Raises `evals.gate.LeverNotApplied` when a counted position attended another cache, and what workers raise.
    """
    from engine import load_tokenizer
    from evals import corpus
    from evals.fidelity import run_fidelity
    from evals.gate import gate

    tokenizer = load_tokenizer(model)
    quality_class = conf.experiment.quality_class
    done = []
    for run in conf.profile.kl:
        result = run_fidelity(
            base,
            [candidate],
            corpus.joined(tokenizer, run.sequences, run.length + 1),
            protocol=run.protocol,
            tail=run.tail,
            floor_sequences=4 if quality_class == "L" or conf.profile.decides else 0,
            labels=corpus.domains(run.sequences),
            corpus_sha256=corpus.SHA256,
            progress=progress,
        )[0]
        verdict = gate(result.report, quality_class, lever=result.lever)
        done.append(
            FidelityRun(
                protocol=run.protocol,
                status=verdict.status,
                may_be_default=verdict.may_be_default,
                kl_mean=result.report.kl.value,
                kl_max=result.report.kl_max,
                counted=result.report.counted,
                total=result.report.total,
                corpus_sha256=corpus.SHA256,
                reasons=verdict.reasons,
                document=document({"result": result.as_dict(), "gate": verdict.as_dict()}),
            )
        )
    return done
