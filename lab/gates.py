"""Which gate an experiment has: KL of logits, or for a sampler its own quality."""

from __future__ import annotations

from pathlib import Path

from lab import fidelity, sampler_gate
from lab.config import LabConf
from lab.fidelity import FidelityRun, Progress
from oracles.contract import StackConfig


def run_gate(
    conf: LabConf, model: Path, base: StackConfig, candidate: StackConfig, progress: Progress
) -> list[FidelityRun]:
    """The gate of the experiment. The base is the reference. Raises what either gate raises."""
    sampled = "sampler" in conf.experiment.lever
    run = sampler_gate.run_sampler_gate if sampled else fidelity.run_kl_gate
    return run(conf, model, base, candidate, progress)
