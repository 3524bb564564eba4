"""How long a run will take, foretold from a pilot, and what is cut where a profile has a budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.config import LabConf
from lab.fidelity import kl_seconds
from lab.measure import Sample
from lab.rules import engaged_tokens

# Below these sizes the gate could not pass whatever it found (evals.gate: 16 sequences, 512 positions).
LEAST_KL_LENGTH = 48
LEAST_KL_SEQUENCES = 16
START_S = 4.0  # two processes load a model of this size together; measured on two cores


@dataclass(frozen=True)
class Forecast:
    """Seconds to come, from the pilot's sample."""

    sample_s: float
    kl_s: float

    def seconds(self, aa_quads: int, ab_quads: int, conf: LabConf) -> float:
        p = conf.profile
        launches = -(-aa_quads // p.quads_per_launch) + -(-ab_quads // p.quads_per_launch)
        samples = 4 * (aa_quads + ab_quads) + 2 * p.discard * launches
        return launches * START_S + samples * self.sample_s + self.kl_s + START_S


def forecast(conf: LabConf, pilot: Sample) -> Forecast:
    """What a pilot's sample foretells."""
    if "sampler" in conf.experiment.lever:  # one forward of the first texts, of one arm
        run = conf.profile.kl[0]
        return Forecast(pilot.sample_s, run.sequences * run.length / pilot.prefill_tok_s)
    kl_s = sum(kl_seconds(run, pilot.prefill_tok_s, pilot.decode_tok_s) for run in conf.profile.kl)
    return Forecast(pilot.sample_s, kl_s)


def fit(conf: LabConf, pilot: Sample) -> tuple[str, ...]:
    """Cut the A/A, then the KL text until the forecast fits the budget; says what was cut."""
    p, notes = conf.profile, []
    if p.budget_s is None:
        return ()

    def over() -> bool:
        return forecast(conf, pilot).seconds(p.aa_quads, conf.quads, conf) > float(p.budget_s or 0)

    if over() and p.aa_quads > 1:
        notes.append(f"A/A cut from {p.aa_quads} quads to 1: the pilot was too slow for {p.budget_s:.0f} s")
        p.aa_quads = 1
    for run in p.kl:
        full = (run.sequences, run.length)
        least = max(LEAST_KL_LENGTH, engaged_tokens(conf.experiment) + run.tail)
        while over() and run.length - 16 >= least:
            run.length -= 16
        while over() and run.sequences > LEAST_KL_SEQUENCES:
            run.sequences -= 4
        if full != (run.sequences, run.length):
            sizes = f"{full[0]} x {full[1]} tokens to {run.sequences} x {run.length}"
            notes.append(f"KL text cut from {sizes}: the pilot was too slow for {p.budget_s:.0f} s")
    if over():
        notes.append(f"still over {p.budget_s:.0f} s: nothing else is cut, a counted metric needs three runs an arm")
    return tuple(notes)
