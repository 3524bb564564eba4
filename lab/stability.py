"""The stability gate: may this machine say anything about this metric of this workload? Pure.

A cell is machine x workload x metric. It is stable only if every check passes; each that does not is named with its
number and limit. What could not be read is "not judged" and said so, never taken for good.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab import stats
from lab.config import LabConf
from lab.design import Plan
from lab.measure import METRICS, QuadResult, Sample, counts, full_launches
from lab.metrics import COUNTED, DRAWN
from lab.sensors import UNKNOWN
from lab.stats import launch_means, six_digits

ROBUST_SD = 1.4826  # MAD of a normal distribution to its sd
MACHINE_SENSORS = ("load per core", "swap-in bytes", "free bytes")  # what a shared machine cannot promise
LEAST_WARM = 2  # samples before the windows of the steady-state test

Kind = Literal["precision", "validity", "note"]


@dataclass(frozen=True)
class Finding:
    """What a check found. precision: the interval is too wide for delta; validity: the numbers do not mean what they
    should; note: said, without a consequence."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Cell:
    """`reasons`: each check that failed. `valid`: False if one of them is more than a lack of precision."""

    metric: str
    state: Literal["stable", "unstable"]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    valid: bool

    @classmethod
    def of(cls, metric: str, findings: Sequence[Finding]) -> Cell:
        reasons = tuple(f.text for f in findings if f.kind != "note")
        notes = tuple(f.text for f in findings if f.kind == "note")
        valid = all(f.kind != "validity" for f in findings)
        return cls(metric, "unstable" if reasons else "stable", reasons, notes, valid)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What the gate looks at. aa, ab: quads of each part. warm: the samples before the A/A, in order. sensors: what the
    machine's sensors said (name, value, limit, status), from the session's events. plans: what the coins had said.
    clocks: of the CPU behind each sample, in MHz; empty where the machine does not tell."""

    aa: Sequence[QuadResult]
    ab: Sequence[QuadResult]
    warm: Sequence[Sample]
    sensors: Sequence[Mapping[str, Any]]
    plans: Mapping[str, Plan]
    clocks: Sequence[float] = ()

    @property
    def samples(self) -> list[Sample]:
        return [sample for quad in (*self.aa, *self.ab) if quad.valid for sample in quad.samples]


def _over(value: float, limit: float, what: str, kind: Kind, form: str = "{:.1f} %") -> Iterator[Finding]:
    """A finding where `value` is beyond `limit`; both are shares."""
    value = six_digits(value)
    if not value <= limit:  # nan and infinity are beyond any limit
        shown = form.format(100 * value) if math.isfinite(value) else "unbounded"
        yield Finding(kind, f"{what} {shown}, above {form.format(100 * limit)}")


def judge_cell(conf: LabConf, session: Session, metric: str, delta: float) -> Cell:
    """The cell of one metric. `delta`: the relative gain that matters for it.

    A counted metric depends on nothing but the protocol and the spread of its repeats, one of drawn tokens on the
    protocol and the A/A.
    """
    findings = list(protocol(session))
    if metric in COUNTED:
        findings += counted(conf, session, metric)
    elif metric in DRAWN:
        findings += aa_checks(conf, session.aa, metric, delta)
    else:
        findings += aa_checks(conf, session.aa, metric, delta)
        findings += thirds(conf, session.ab, metric)
        findings += outliers(conf, session, metric)
        findings += machine(conf, session)
        findings += clocks(conf, session.clocks)
        findings += steady(conf, session.warm)
    return Cell.of(metric, findings)


def aa_checks(conf: LabConf, aa: Sequence[QuadResult], metric: str, delta: float) -> Iterator[Finding]:
    """The A/A: no difference, an interval and an MDE within delta, a spread within the class, no memory."""
    launches = full_launches(aa, metric, min(conf.profile.quads_per_launch, conf.profile.aa_quads))
    if len(launches) < 2:
        whole = "1 whole launch" if launches else "no whole launch"
        yield Finding("precision", f"A/A: {whole}, at least 2 are needed")
        return
    means = [six_digits(mean) for mean in launch_means(launches)]
    p, limit = six_digits(stats.wilcoxon_two_sided(means)), conf.thresholds.aa_p
    if p <= limit:
        yield Finding("validity", f"A/A differs: two-sided p {p:.3f}, at most {limit}")
    _, sd = stats.mean_sd(means)
    if not sd > 0:
        yield Finding("validity", "A/A: every launch gave the same number, which a clock does not")
        return
    low, high = stats.t_bounds(means, 0.025)
    yield from _over((stats.relative(high) - stats.relative(low)) / 2, delta, "A/A: interval half-width", "precision")
    if metric not in DRAWN:  # whose spread is that of the seeds: the machine has no part in it
        yield from _over(sd, conf.machine.sd_limit, "A/A: sd", "validity")
    planned = conf.quads // conf.profile.quads_per_launch
    yield from _over(stats.mde(sd, planned), delta, f"A/A: MDE at {conf.quads} quads", "precision")
    lag = stats.lag1(means)
    if lag is None:
        yield Finding("note", f"A/A: lag-1 not judged ({len(means)} launches)")
    elif six_digits(abs(lag)) > six_digits(2 / math.sqrt(len(means))):
        yield Finding("validity", f"A/A: lag-1 {lag:.2f} beyond 2/sqrt({len(means)})")


def thirds(conf: LabConf, ab: Sequence[QuadResult], metric: str) -> Iterator[Finding]:
    """The baseline's first third of samples against its last: has the machine changed under the session?"""
    values = [math.log(value) for quad in ab if quad.valid for value in quad.of("base", metric)]
    third = len(values) // 3
    if not third:
        yield Finding("note", "baseline's first and last third not judged: no valid quad")
        return
    change = math.expm1(abs(math.fsum(values[-third:]) - math.fsum(values[:third])) / third)
    kind: Kind = "validity" if conf.machine.thirds_decide else "note"
    yield from _over(change, conf.machine.thirds_limit, "baseline's last third differs from its first by", kind)


def outliers(conf: LabConf, session: Session, metric: str) -> Iterator[Finding]:
    """The share of samples far from the median of their part and arm, in robust sd of logs."""
    groups: dict[tuple[str, str], list[float]] = {}
    for sample in session.samples:
        arm = sample.role if sample.part == "ab" else "base"
        groups.setdefault((sample.part, arm), []).append(math.log(sample.value(metric)))
    beyond = total = 0
    for values in groups.values():
        centre = statistics.median(values)
        spread = ROBUST_SD * statistics.median([abs(v - centre) for v in values])
        if spread > 0:
            beyond += sum(abs(v - centre) > conf.thresholds.outlier_sd * spread for v in values)
            total += len(values)
    if not total:
        yield Finding("note", "outliers not judged: no spread")
        return
    what = f"samples beyond {conf.thresholds.outlier_sd:g} robust sd:"
    yield from _over(beyond / total, conf.thresholds.outlier_share, what, "validity")


def machine(conf: LabConf, session: Session) -> Iterator[Finding]:
    """Steal over the samples, and the sensors of pre- and post-flight. Load, swap and free memory are notes on a shared
    machine, where nobody can promise them."""
    steal = [sample.steal for sample in session.samples if sample.steal is not None]
    if steal:
        share = math.fsum(steal) / len(steal)
        yield from _over(share, conf.machine.steal_limit, "steal during the samples", "validity", "{:.2f} %")
    else:
        yield Finding("note", "steal during the samples not judged: this machine does not report it")
    blind: dict[str, None] = {}
    for sensor in session.sensors:
        name, value = str(sensor["name"]), sensor["value"]
        if sensor["status"] == "not judged":
            blind[name] = None
        elif sensor["status"] == "dirty" and name != "steal":
            shared = conf.machine.name == "shared" and name in MACHINE_SENSORS
            words = f"{sensor['when']}: {name} {value:.3g}, limit {sensor['limit']:.3g}"
            yield Finding("note" if shared else "validity", words)
    if blind:
        yield Finding("note", f"not judged ({UNKNOWN}): {', '.join(blind)}")


def clocks(conf: LabConf, mhz: Sequence[float]) -> Iterator[Finding]:
    """The CPU's clock over the session: the medians of its thirds agree within the limit of the machine's class."""
    third = len(mhz) // 3
    if not third:
        yield Finding("note", f"clocks not judged: {UNKNOWN}")
        return
    if len({*mhz}) == 1:
        yield Finding("note", f"clocks: always {mhz[0]:.0f} MHz, which may be a nominal one: no slowdown would show")
    medians = [statistics.median(part) for part in (mhz[:third], mhz[third:-third], mhz[-third:])]
    spread = max(medians) / min(medians) - 1
    yield from _over(spread, conf.machine.clock_limit, "clocks of thirds differ by", "validity")


def is_steady(durations: Sequence[float], window: int, limit: float) -> bool:
    """Whether the last two windows of samples agree, after at least `LEAST_WARM` others."""
    if len(durations) < LEAST_WARM + 2 * window:
        return False
    first, last = durations[-2 * window : -window], durations[-window:]
    return six_digits(abs(math.fsum(last) / math.fsum(first) - 1)) <= limit


def steady(conf: LabConf, warm: Sequence[Sample]) -> Iterator[Finding]:
    """The steady-state test at the head of the session."""
    window, limit = conf.profile.steady_window, conf.machine.steady_limit
    if not window:
        yield Finding("note", "steady state not judged: the profile has no test of it")
    elif not is_steady([sample.sample_s for sample in warm], window, limit):
        words = f"no steady state: two windows of {window} samples never agreed within {100 * limit:.0f} %"
        yield Finding("validity", f"{words} in {len(warm)} samples")


def counted(conf: LabConf, session: Session, metric: str) -> Iterator[Finding]:
    """Repeats of a count agree, in the A/A and in each arm."""
    limits = conf.thresholds
    for name, quads in (("A/A", session.aa), ("A/B", session.ab)):
        base, candidate = counts(quads, metric, "base"), counts(quads, metric, "candidate")
        if not base:
            yield Finding("precision", f"{name}: no valid quad")
            continue
        found = stats.count(base, candidate, METRICS[metric], runs=1, spread_limit=limits.counted_spread)
        yield from _over(found.spread, limits.counted_spread, f"{name}: spread of the counts", "validity", "{:.2f} %")
        if name == "A/A":
            change = abs(found.estimate)
            yield from _over(change, limits.counted_spread, "A/A: the counts differ by", "validity", "{:.2f} %")


def protocol(session: Session) -> Iterator[Finding]:
    """The rows show that the coins were followed and that no launch kept the processes of another."""
    seen: dict[tuple[int, float], tuple[str, int]] = {}
    for part, quads in (("aa", session.aa), ("ab", session.ab)):
        plan = session.plans.get(part)
        if plan is not None:
            orders = {quad.block: quad.order for launch in plan.launches for quad in launch.quads}
            wrong = [q.block + 1 for q in quads if any(s.order != orders.get(q.block) for s in q.samples)]
            if wrong:
                yield Finding("validity", f"{part}: the order of quads {wrong[:5]} is not the coin's")
        for quad in quads:
            for sample in quad.samples:
                owner = seen.setdefault((sample.pid, sample.process_started), (part, quad.launch))
                if owner != (part, quad.launch):
                    where = f"{owner[0]} launch {owner[1] + 1} and {part} launch {quad.launch + 1}"
                    yield Finding("validity", f"no relaunch: {where} share process {sample.pid}")
                    return
