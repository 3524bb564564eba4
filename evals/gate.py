"""The fidelity gate: a veto by class, never a ranking (near the baseline KL does not order task scores).

Classes: "L" lossless (bits or ties only), "Q8" near-lossless, "QT" a quality trade. Mean KL, top-1 agreement and the
ratio of perplexities are judged by their 95 % interval: wholly inside the limit passes, wholly outside fails, else it
is undecided. p99.9 and the maximum are judged as observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from engine import errors
from evals.bootstrap import Interval
from evals.report import FLIP_GAP_NATS, KLReport
from oracles.contract import SchemeNotLive

Status = Literal["PASS", "FAIL", "UNDECIDED"]
Grade = Literal["PASS", "WARN", "FAIL"]

# A pass needs at least this much text; a failure can show earlier.
MIN_SEQUENCES = 16
MIN_POSITIONS = 512
# Class L: each limit is the larger of this and `FLOOR_FACTOR` times the A/A floor.
FLOOR_FACTOR = 2.0


class LeverNotApplied(SchemeNotLive):
    """A counted position, or all of them, did not attend the candidate's cache scheme: the run is invalid."""


@dataclass(frozen=True)
class Limits:
    """Limits of one class; None is not judged. KL in nats. `kl_mean_default`: above it, opt-in only."""

    kl_mean: float
    kl_mean_default: float | None = None
    kl_p999: float | None = None
    kl_max: float | None = None
    top1: float | None = None
    ln_ppl_ratio: float | None = None
    no_flips: bool = False


CLASSES: dict[str, Limits] = {
    "L": Limits(kl_mean=1e-4, kl_p999=5e-3, kl_max=0.05, top1=0.995, no_flips=True),
    "Q8": Limits(kl_mean=2e-3, kl_p999=0.05, top1=0.975, ln_ppl_ratio=0.002),
    "QT": Limits(kl_mean=3.5e-2, kl_mean_default=1e-2),
}


@dataclass(frozen=True)
class Check:
    """One condition of the gate; `text` says the numbers."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True)
class GateResult:
    """`status`: FAIL if any check fails, else UNDECIDED if any is, else PASS.

    `may_be_default`: False where the class allows opt-in use only. `reasons`: the texts of what is not a pass, or of
    all checks of a pass.
    """

    fidelity_class: str
    status: Status
    may_be_default: bool
    checks: tuple[Check, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        shown = [check for check in self.checks if check.status == self.status]
        return tuple(f"{check.name}: {check.text}" for check in shown)

    @property
    def grade(self) -> Grade:
        """In a word: WARN is neither a failure nor fit to be a default, by what is shown."""
        if self.status == "FAIL":
            return "FAIL"
        return "PASS" if self.may_be_default else "WARN"

    @property
    def words(self) -> str:
        """The grade and the bounds that decided it."""
        if self.status == "UNDECIDED":
            return f"WARN, undecided; {'; '.join(self.reasons)}"
        limit = CLASSES[self.fidelity_class].kl_mean_default
        opt_in = f", opt-in only: the mean's upper bound is over {limit:g}" if self.grade == "WARN" else ""
        return f"{self.grade}{opt_in}; {'; '.join(self.reasons)}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"reasons": list(self.reasons), "grade": self.grade}


def require_full_share(counted: int, total: int, lever: str) -> None:
    """Raise `LeverNotApplied` unless every position that the protocol scores was counted, and there is one."""
    if counted == 0 or counted != total:
        share = 0.0 if total == 0 else 100 * counted / total
        raise LeverNotApplied(
            f"lever not applied: {counted} of {total} scored positions ({share:.1f} %) attended {lever}; all must"
        )


def gate(report: KLReport, fidelity_class: str, *, lever: str = "the candidate's scheme") -> GateResult:
    """Judge a report. Raises `errors.UnknownField` for an unknown class, `LeverNotApplied` for an invalid run."""
    if fidelity_class not in CLASSES:
        raise errors.UnknownField("fidelity class", fidelity_class, CLASSES)
    require_full_share(report.counted, report.total, lever)
    checks = tuple(_checks(report, fidelity_class))
    statuses = {check.status for check in checks}
    status: Status = "FAIL" if "FAIL" in statuses else "UNDECIDED" if "UNDECIDED" in statuses else "PASS"
    limit = CLASSES[fidelity_class].kl_mean_default
    default = status == "PASS" and (limit is None or (report.kl.high is not None and report.kl.high <= limit))
    return GateResult(fidelity_class, status, default, checks)


def _checks(report: KLReport, name: str) -> Iterator[Check]:
    limits = CLASSES[name]
    floor = report.floor if name == "L" else None
    enough = report.sequences >= MIN_SEQUENCES and report.counted >= MIN_POSITIONS
    size = f"{report.sequences} sequences, {report.counted} positions"
    need = f"; a pass needs {MIN_SEQUENCES} and {MIN_POSITIONS}"
    yield Check("size", "PASS" if enough else "UNDECIDED", size + ("" if enough else need))
    yield _below("mean KL", report.kl, _raised(limits.kl_mean, None if floor is None else floor.kl_mean))
    if limits.kl_p999 is not None:
        limit = _raised(limits.kl_p999, None if floor is None else floor.kl_p999)
        yield _observed("p99.9 KL", report.kl_p999, limit)
    if limits.kl_max is not None:
        yield _observed("max KL", report.kl_max, _raised(limits.kl_max, None if floor is None else floor.kl_max))
    if limits.top1 is not None:
        yield _above("top-1 agreement", report.top1, limits.top1)
    if limits.ln_ppl_ratio is not None:
        yield _within("ln PPL ratio", report.ln_ppl_ratio, limits.ln_ppl_ratio)
    if limits.no_flips:
        text = f"{report.flips} changes of the top token at a reference gap > {FLIP_GAP_NATS} nat; none is allowed"
        yield Check("flips", "FAIL" if report.flips else "PASS", text)


def _raised(limit: float, floor: float | None) -> float:
    return limit if floor is None else max(limit, FLOOR_FACTOR * floor)


def _span(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.3g} (no interval: one sequence)"
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"


def _below(name: str, found: Interval, limit: float) -> Check:
    status: Status = "UNDECIDED"
    if found.low is not None and found.high is not None:
        status = "PASS" if found.high <= limit else "FAIL" if found.low > limit else "UNDECIDED"
    return Check(name, status, f"{_span(found)}, limit {limit:.3g}")


def _above(name: str, found: Interval, limit: float) -> Check:
    status: Status = "UNDECIDED"
    if found.low is not None and found.high is not None:
        status = "PASS" if found.low >= limit else "FAIL" if found.high < limit else "UNDECIDED"
    return Check(name, status, f"{_span(found)}, at least {limit:.4g}")


def _within(name: str, found: Interval, limit: float) -> Check:
    status: Status = "UNDECIDED"
    if found.low is not None and found.high is not None:
        inside = -limit <= found.low and found.high <= limit
        outside = found.low > limit or found.high < -limit
        status = "PASS" if inside else "FAIL" if outside else "UNDECIDED"
    return Check(name, status, f"{_span(found)}, within +-{limit:.3g}")


def _observed(name: str, value: float, limit: float) -> Check:
    return Check(name, "PASS" if value <= limit else "FAIL", f"{value:.3g} observed, limit {limit:.3g}")
