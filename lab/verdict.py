"""From the sessions of an experiment to the facts of the decision table. Pure: a run, `decide` and `replay` all end
here, with what they read from the database.

A search session asks whether there is a gain; a confirmation, another session with another prompt, asks once more. The
first confirmation that could be used decides, whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from lab import judge, stats
from lab.config import LabConf
from lab.decide import PRIMARIES, Confirmed, Decision, Facts, Primary, decide
from lab.fidelity import FidelityRun, gate_of
from lab.frontier import NEW_FRONTIER_P
from lab.judge import Comparison, gate_words
from lab.measure import METRICS, full_launches
from lab.metrics import COUNTED, DRAWN
from lab.pair_frontier import Beside, p_on_frontier, points_of, stands
from lab.stability import Cell, Session, judge_cell


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one session left. stopped: "looks", "look" or "time"; aa_from: the session whose A/A it took over, or ""."""

    uid: str
    machine_key: str
    conf: LabConf
    session: Session
    stopped: str
    aa_from: str
    fidelity: tuple[FidelityRun, ...]


@dataclass(frozen=True)
class History:
    """What else counts: the search sessions and the confirmations that were begun (this one too), the day, the expiry,
    what other target keys said."""

    done: int
    confirms: int
    as_of: date
    expires_on: date
    others_no: bool


@dataclass(frozen=True)
class Confirmation:
    """What a confirmation session says. `estimate` is the one that is published; `pooled` is over both sessions."""

    state: Literal["yes", "not yet", "failed"]
    why: str
    uid: str
    estimate: float | None = None
    pooled: float | None = None
    strong: bool = False


@dataclass(frozen=True)
class Judged:
    """Comparisons of the search session, the cell of each metric, the facts and the decision. `why`: numbers, a line
    each; `notes`: what the reader must know and no number says."""

    comparisons: tuple[Comparison, ...]
    cells: tuple[Cell, ...]
    facts: Facts
    decision: Decision
    confirmations: tuple[Confirmation, ...]
    why: tuple[str, ...]
    notes: tuple[str, ...]


def metrics(conf: LabConf) -> list[str]:
    """The primary, then the guardrails."""
    return [conf.experiment.primary, *conf.experiment.guardrails]


def cells_of(measured: Measured) -> dict[str, Cell]:
    """The cell of each metric of the session; a guardrail's delta is its margin."""
    conf = measured.conf
    deltas = dict.fromkeys(conf.experiment.guardrails, conf.machine.guardrail_margin)
    return {m: judge_cell(conf, measured.session, m, deltas.get(m, conf.delta)) for m in metrics(conf)}


def compare(measured: Measured, cells: dict[str, Cell]) -> list[Comparison]:
    """Primary, guardrails and A/A of one session. A guardrail whose cell means nothing is unknown."""
    conf, quads = measured.conf, measured.session.ab
    silent = {m: "" if cells[m].valid else f"its cell is unstable ({cells[m].reasons[0]})" for m in cells}
    return [
        judge.compare_primary(conf, quads, time_capped=measured.stopped == "time"),
        *(judge.compare_guardrail(conf, quads, m, silent[m]) for m in conf.experiment.guardrails),
        *(judge.take_aa(conf, measured.session.aa, m) for m in metrics(conf)),
    ]


def confirm(search: Measured, again: Measured) -> Confirmation:
    """Judge one confirmation of a search session: one-sided p below its alpha, pooled estimate at least delta, and no
    guardrail worse. A session that is unstable, cut by time or short of quads confirms nothing and refutes nothing."""
    conf, uid = again.conf, again.uid
    cells = cells_of(again)
    primary, *others = compare(again, cells)
    cell = cells[primary.metric]
    if cell.state == "unstable":
        return Confirmation("not yet", f"the cell is unstable: {cell.reasons[0]}", uid)
    if again.stopped == "time":
        return Confirmation("not yet", "the time cap came first", uid)
    worse = [c.metric for c in others if c.use == "guardrail" and c.state == "worse"]
    wanted = _primary(judge.compare_primary(search.conf, search.session.ab, time_capped=search.stopped == "time"))
    if primary.look is not None:
        if primary.look.quads < conf.quads:
            return Confirmation("not yet", f"{primary.look.quads} of {conf.quads} quads are valid", uid)
        estimate, significant = primary.look.estimate, primary.look.significant
        pooled = stats.pooled([_launches(search, primary.metric), _launches(again, primary.metric)])
        strong = primary.look.low >= conf.delta
    elif primary.counted is not None:
        if not (primary.counted.enough and primary.counted.steady):
            return Confirmation("not yet", f"{primary.counted.runs} runs an arm are too few or differ", uid)
        estimate, significant = primary.counted.estimate, True
        pooled, strong = _pooled_count(search, again, primary.metric), False
    else:
        return Confirmation("not yet", primary.why, uid)
    if wanted == "win":
        passes = significant and pooled >= conf.delta and not worse
    else:  # no gain was claimed: it must not turn out to be a loss
        passes = _primary(primary) in ("win", "small", "same") and not worse
    words = f"{primary.why}; pooled {judge.percent(pooled)}, delta {judge.percent(conf.delta)}"
    words += f"; worse: {', '.join(worse)}" if worse else ""
    return Confirmation("yes" if passes else "failed", words, uid, estimate, pooled, strong)


def _launches(measured: Measured, metric: str) -> list[list[float]]:
    return full_launches(measured.session.ab, metric, measured.conf.profile.quads_per_launch)


def _pooled_count(search: Measured, again: Measured, metric: str) -> float:
    quads = [q for m in (search, again) for q in m.session.ab if q.valid]
    base, candidate = ([v for q in quads for v in q.of(role, metric)] for role in ("base", "candidate"))
    limits = again.conf.thresholds
    runs, spread = limits.counted_runs, limits.counted_spread
    return stats.count(base, candidate, METRICS[metric], runs=runs, spread_limit=spread).estimate


def confirmed(found: Sequence[Confirmation], limit: int, begun: int) -> Confirmed:
    """The first that could be used decides; `limit` that were begun and could not are a failure."""
    for confirmation in found:
        if confirmation.state != "not yet":
            return confirmation.state
    return "failed" if begun >= limit else "not yet"


def judge_experiment(
    search: Measured, confirmations: Sequence[Measured], history: History, find: Callable[[], Beside] = Beside
) -> Judged:
    """Everything that a search session and its confirmations say, and the row of the table that they meet. find: the
    other recipes that a candidate which pays for its gain is judged beside, asked for such a one alone."""
    conf, e, kl = search.conf, search.conf.experiment, search.fidelity
    cells = cells_of(search)
    comparisons = compare(search, cells)
    primary, rails = comparisons[0], [c for c in comparisons if c.use == "guardrail"]
    aa = {c.metric: c for c in comparisons if c.use == "aa"}
    again = tuple(confirm(search, session) for session in confirmations)
    used = next((c for c in again if c.state != "not yet"), None)
    pays = _primary(primary) == "win" and judge.guardrails_state(rails) == "worse"
    points = points_of("candidate", search.session.ab, conf.profile.quads_per_launch, kl) if pays else None
    beside = Beside() if points is None else find()
    p_on = None if points is None else p_on_frontier(points[1], (points[0], *beside.points))
    expired = history.as_of > history.expires_on
    spent = history.done >= conf.thresholds.max_sessions and len(search.session.ab) >= conf.quads
    facts = Facts(
        kind="oracle-owned" if e.kind == "oracle-owned" else "ours",
        machine="shared" if conf.machine.name == "shared" else "quiet",
        quick=not conf.profile.decides,
        gate=gate_of(kl),
        cell=cells[e.primary].state,
        aa_failed=aa[e.primary].state == "differ",
        primary=_primary(primary),
        guardrails=judge.guardrails_state(rails),
        confirmed=confirmed(again, conf.thresholds.max_sessions, history.confirms),
        removes_code=e.kind == "ours" and e.removes_lines >= conf.thresholds.removed_lines,
        on_frontier=stands(p_on),
        beside="" if p_on is None else beside.words,
        exhausted=expired or spent,
        counted=e.primary in COUNTED,
        drawn=e.primary in DRAWN,
        time_capped=search.stopped == "time",
        identical=bool(kl) and all(run.kl_max == 0 for run in kl),
        strong=primary.look is not None and primary.look.low >= conf.delta and used is not None and used.strong,
        others_no=history.others_no,
        opt_in_only=bool(kl) and all(run.status == "PASS" for run in kl) and not all(r.may_be_default for r in kl),
    )
    return Judged(
        comparisons=tuple(comparisons),
        cells=tuple(cells.values()),
        facts=facts,
        decision=decide(facts),
        confirmations=again,
        why=(*_words(search, comparisons, cells, again), *frontier_words(p_on, beside)),
        notes=tuple(_notes(search, cells)),
    )


def frontier_words(p_on: float | None, beside: Beside) -> tuple[str, ...]:
    """The share of bootstraps in which nobody dominates the candidate, and which recipes were left out."""
    if p_on is None:
        return ()
    line = f"frontier: P {p_on:.2f} that nobody of {beside.words} dominates it, on it from {NEW_FRONTIER_P:g}"
    return (line, *(f"not beside it: {why}" for why in beside.left_out))


def _words(
    search: Measured, comparisons: Sequence[Comparison], cells: dict[str, Cell], again: Sequence[Confirmation]
) -> list[str]:
    """The numbers behind the decision."""
    lines = [f"{c.use} {c.metric}: {c.state}; {c.why}" for c in comparisons if c.use != "aa"]
    lines += [f"cell {c.metric}: unstable; {'; '.join(c.reasons)}" for c in cells.values() if c.reasons]
    lines += [f"{gate_words(search.conf)}: {run.words}" for run in search.fidelity]
    lines += [f"confirmation {c.uid}: {c.state}; {c.why}" for c in again]
    lines += [f"published estimate: {judge.percent(c.estimate)}" for c in again if c.state == "yes" and c.estimate]
    return lines


def _notes(search: Measured, cells: dict[str, Cell]) -> list[str]:
    """What is said once, though several cells say it."""
    notes = [f"the A/A is the one of session {search.aa_from}"] if search.aa_from else []
    notes += [f"A/B quad {q.block + 1} is invalid: {q.why}" for q in search.session.ab if not q.valid]
    where: dict[str, list[str]] = {}
    for cell in cells.values():
        for note in cell.notes:
            where.setdefault(note, []).append(cell.metric)
    return notes + [f"{', '.join(names)}: {note}" for note, names in where.items()]


def _primary(comparison: Comparison) -> Primary:
    """The state of a primary; its type says more than `Comparison.state` does."""
    return next(state for state in PRIMARIES if state == comparison.state)
