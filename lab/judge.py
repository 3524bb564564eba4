"""From quads and the gate to the facts of the decision table. Pure.

A timed metric is judged by launches (`lab.stats`), a counted one by the largest of each launch. Whether the machine may
say anything at all is `lab.stability`'s matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, Literal

from lab import stats
from lab.config import LabConf
from lab.decide import Gate, Guardrails, Primary
from lab.design import ROLE_OF
from lab.measure import METRICS, QuadResult, counts, full_launches
from lab.metrics import COUNTED
from lab.stats import Counted, Look, count, launch_means, six_digits, take_look, wilcoxon_two_sided

Use = Literal["primary", "guardrail", "aa"]
State = Literal["win", "small", "same", "loss", "open", "holds", "worse", "unknown", "equal", "differ", "not judged"]


@dataclass(frozen=True)
class Comparison:
    """One metric of one part, in one use. `state`: what it means there; `why` in words, numbers included."""

    metric: str
    use: Use
    state: State
    why: str
    look: Look | None = None
    counted: Counted | None = None


def document(value: object) -> Any:
    """A dataclass or value as JSON: infinities and nan, which JSON lacks, become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return document(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): document(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [document(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def percent(value: float) -> str:
    return "unbounded" if math.isinf(value) else "none" if math.isnan(value) else f"{100 * value:+.1f} %"


def several(n: int, what: str) -> str:
    """`1 quad`, `2 quads`, `2 launches`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}{'es' if what.endswith('ch') else 's'}"


def look_words(look: Look) -> str:
    """A look in one line."""
    if look.launches < 2:
        return f"{percent(look.estimate)} from {several(look.launches, 'launch')}: too few for an interval"
    return (
        f"{percent(look.estimate)} ({percent(look.low)} to {percent(look.high)}), {look.quads} quads in "
        f"{look.launches} launches, p Wilcoxon {look.p_wilcoxon:.4f}, p t {look.p_t:.4f}, alpha {look.alpha}"
    )


def counted_words(counted: Counted) -> str:
    """A count in one line."""
    return (
        f"{counted.base:,.0f} and {counted.candidate:,.0f} bytes, gain {percent(counted.estimate)}, "
        f"{counted.runs} runs an arm, spread {100 * counted.spread:.2f} %"
    )


def primary_of_look(look: Look) -> Primary:
    """The state of a timed primary."""
    if look.win:
        return "win"
    if look.low > 0 and look.estimate < look.delta:
        return "small"
    if -look.delta < look.low and look.high < look.delta:
        return "same"
    return "loss" if look.high < 0 else "open"


def primary_of_count(counted: Counted, delta: float) -> Primary:
    """The state of a counted primary: no interval, so the numbers themselves decide."""
    if not counted.enough:
        return "open"
    if counted.estimate >= delta:
        return "win"
    if counted.estimate > 0:
        return "small"
    return "same" if counted.estimate == 0 else "loss"


def _count(conf: LabConf, quads: Sequence[QuadResult], metric: str) -> Counted | None:
    """Of the launches; `runs` are samples."""
    base, candidate = counts(quads, metric, "base"), counts(quads, metric, "candidate")
    if not base or not candidate:
        return None
    limits = conf.thresholds
    found = count(base, candidate, METRICS[metric], runs=1, spread_limit=limits.counted_spread)
    runs = min(sum(len(quad.of(role, metric)) for quad in quads if quad.valid) for role in ROLE_OF.values())
    return replace(found, runs=runs, enough=runs >= limits.counted_runs)


def alpha_of(conf: LabConf, quads: int) -> float:
    """The alpha of the last planned look that `quads` reaches; the first one's before that."""
    reached = [spend.alpha for spend in conf.profile.spends if spend.quads <= quads]
    return reached[-1] if reached else conf.profile.spends[0].alpha


def take_aa(conf: LabConf, quads: Sequence[QuadResult], metric: str) -> Comparison:
    """The same code on both sides: it must not differ."""
    if metric in COUNTED:
        counted = _count(conf, quads, metric)
        if counted is None:
            return Comparison(metric, "aa", "not judged", "no valid quad")
        within = abs(counted.estimate) <= conf.thresholds.counted_spread
        return Comparison(metric, "aa", "equal" if within else "differ", counted_words(counted), counted=counted)
    launches = full_launches(quads, metric, min(conf.profile.quads_per_launch, conf.profile.aa_quads))
    look = take_look(launches, 0.025, conf.machine.delta)
    if len(launches) < 2:
        return Comparison(metric, "aa", "not judged", look_words(look), look=look)
    p = six_digits(wilcoxon_two_sided([six_digits(mean) for mean in launch_means(launches)]))
    differs = p <= conf.thresholds.aa_p
    return Comparison(metric, "aa", "differ" if differs else "equal", f"p {p:.3f}; {look_words(look)}", look=look)


def compare_primary(conf: LabConf, quads: Sequence[QuadResult], *, time_capped: bool) -> Comparison:
    """The primary of the A/B. A time cap between looks leaves a timed one open."""
    metric = conf.experiment.primary
    if metric in COUNTED:
        counted = _count(conf, quads, metric)
        if counted is None:
            return Comparison(metric, "primary", "open", "no valid quad")
        return Comparison(
            metric, "primary", primary_of_count(counted, conf.delta), counted_words(counted), counted=counted
        )
    launches = full_launches(quads, metric, conf.profile.quads_per_launch)
    look = take_look(launches, alpha_of(conf, sum(map(len, launches))), conf.delta)
    state: State = "open" if time_capped else primary_of_look(look)
    why = look_words(look) if look.agree else f"{look_words(look)}; the tests disagree"
    return Comparison(metric, "primary", state, why, look=look)


def compare_guardrail(conf: LabConf, quads: Sequence[QuadResult], metric: str, silent: str = "") -> Comparison:
    """One guardrail of the A/B. `silent`: why it can neither hold nor break, "" if it can."""
    if metric in COUNTED:
        counted, margin = _count(conf, quads, metric), conf.thresholds.counted_margin
        if counted is None:
            return Comparison(metric, "guardrail", "unknown", "no valid quad")
        state: State = "unknown"
        if counted.enough and counted.steady and not silent:
            state = "worse" if counted.candidate > counted.base * (1 + margin) else "holds"
        why = f"{counted_words(counted)}, margin {100 * margin:.0f} %"
        return Comparison(metric, "guardrail", state, _said(silent, why), counted=counted)
    margin = conf.machine.guardrail_margin
    look = take_look(full_launches(quads, metric, conf.profile.quads_per_launch), 0.05, margin)
    why = f"{look_words(look)}, margin {100 * margin:.0f} %"
    state = "unknown" if silent else stats.guardrail(look, margin)
    return Comparison(metric, "guardrail", state, _said(silent, why), look=look)


def _said(silent: str, why: str) -> str:
    return f"{silent}; {why}" if silent else why


def guardrails_state(comparisons: Sequence[Comparison]) -> Guardrails:
    """worse if one is, hold if all do."""
    states = {c.state for c in comparisons if c.use == "guardrail"}
    if "worse" in states:
        return "worse"
    return "unknown" if "unknown" in states else "hold"


def planned_launches(conf: LabConf) -> int:
    """Launches at the last look."""
    return conf.quads // conf.profile.quads_per_launch


def stops(conf: LabConf, quads: Sequence[QuadResult], aa: Mapping[str, Comparison]) -> str:
    """Why a look ends the run; "" to go on. Asked at the planned looks only.

    A timed primary stops on a win, and at the first look for futility. A counted one needs no more quads than its
    guardrails do.
    """
    taken = len(quads)
    looks = [spend.quads for spend in conf.profile.spends]
    if taken not in looks or taken == looks[-1]:
        return ""
    primary = compare_primary(conf, quads, time_capped=False)
    if primary.look is not None:
        if primary.look.win:
            return f"win at {taken} quads"
        return f"futility at {taken} quads" if taken == looks[0] and stats.futile(primary.look) else ""
    silent = {
        metric: "its A/A differs" if aa[metric].state == "differ" else "" for metric in conf.experiment.guardrails
    }
    rails = [compare_guardrail(conf, quads, metric, why) for metric, why in silent.items()]
    return "" if guardrails_state(rails) == "unknown" else f"every guardrail is decided at {taken} quads"


def combine_gates(states: Sequence[str]) -> Gate:
    """PASS/FAIL/UNDECIDED of several KL runs as one gate; none at all is undecided."""
    if "FAIL" in states:
        return "fail"
    return "pass" if states and set(states) == {"PASS"} else "undecided"


def gate_words(conf: LabConf) -> str:
    """The gate of an experiment, for people."""
    if "sampler" in conf.experiment.lever:
        return "sampler gate"
    return f"KL gate {conf.experiment.quality_class}"
