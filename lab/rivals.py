"""Which other recipes of the database a candidate is judged beside when it pays for its gain (row 6 of the table).

A recipe counts where its numbers mean the same: on the same machine key, of the same model at the same context, with
the same base beside it, which holds the same bytes there, and a decode speed that the machine could tell. Each other
one is named with the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lab.estimate import ratio
from lab.evidence import Events, NotReadable, arm_hashes, canonical, machine_key, read_session
from lab.pair_frontier import Beside, Point, points_of
from lab.recipes import RecipeSpec
from lab.scorecard.pools import newest_pool, units_of, usable
from lab.scorecard.runs import Run, read_runs
from lab.scorecard.steadiness import spread_reasons
from lab.scorecard_tables import ScorecardEventRow, ScorecardRunRow
from lab.stability import judge_cell
from lab.store import Store
from lab.tables import ArmRow, ExperimentRow, SessionRow
from lab.verdict import Measured

SPEED = "decode_tok_s"
SAME_BYTES = 0.01  # of the base's peak: beyond that it was another program


class NotBeside(Exception):
    """Why a recipe is not comparable; its words are the reason."""


def recipes_beside(store: Store, search: SessionRow, measured: Measured, until: str = "") -> Beside:
    """Candidates of other experiments, and recipes of the scorecard. until: what was measured later is not known (ISO;
    "" for now)."""
    points: list[Point] = []
    left_out: list[str] = []
    asked = points_of("candidate", measured.session.ab, measured.conf.profile.quads_per_launch, measured.fidelity)
    if asked is None:
        return Beside()
    base = asked[0]
    for name, session in other_sessions(store, search, until):
        try:
            points.append(_candidate(store, name, session, search, base))
        except (NotBeside, NotReadable) as why:
            left_out.append(f"{name}: {why}")
    try:
        points += _scorecard(store, search, measured, base, until)
    except NotBeside as why:
        left_out.append(f"scorecard: {why}")
    return Beside(tuple(points), tuple(left_out))


def other_sessions(store: Store, search: SessionRow, until: str) -> Iterator[tuple[str, SessionRow]]:
    """(experiment, its newest session) of every other experiment that was measured on the machine key, as large."""
    key = machine_key(store, search)
    for experiment in store.rows(ExperimentRow):
        found = [
            row
            for row in store.rows(SessionRow, experiment_id=experiment.id, purpose="search", profile=search.profile)
            if machine_key(store, row) == key and _measured_by(store, row, until)
        ]
        if found and experiment.id != search.experiment_id:
            yield experiment.name, found[-1]


def _measured_by(store: Store, session: SessionRow, until: str) -> bool:
    when = Events.of(store, session.id).when("measured")
    return bool(when) and (not until or when <= until)


def _candidate(store: Store, name: str, session: SessionRow, search: SessionRow, base: Point) -> Point:
    """The candidate of another experiment's session. Raises `NotBeside`, `NotReadable`."""
    mine, others = arm_hashes(store, search), arm_hashes(store, session)
    if others["base"] != mine["base"]:
        raise NotBeside("another base, or another model")
    if session.workload_id != search.workload_id:
        raise NotBeside("another context")
    if others["candidate"] == mine["candidate"]:
        raise NotBeside("the same recipe")
    found = read_session(store, session)
    cell = judge_cell(found.conf, found.session, SPEED, found.conf.machine.guardrail_margin)
    if not cell.valid:
        raise NotBeside(f"its speed is of an unstable cell ({cell.reasons[0]})")
    both = points_of(name, found.session.ab, found.conf.profile.quads_per_launch, found.fidelity)
    if both is None:
        raise NotBeside("fewer than two launches, or no gate")
    return _comparable(*both, base)


def _comparable(own_base: Point, point: Point, base: Point) -> Point:
    """The point, where its base is the same program and its KL is of the same positions."""
    if abs(own_base.peak_bytes / base.peak_bytes - 1) > SAME_BYTES:
        raise NotBeside(f"its base held {own_base.peak_bytes:,.0f} bytes, here {base.peak_bytes:,.0f}")
    if not point.kl_nats.keys() & base.kl_nats.keys():
        raise NotBeside(f"its KL is of other positions ({', '.join(point.kl_nats)})")
    if not all(map(math.isfinite, (*point.log_ratios, point.peak_bytes, *point.kl_nats.values()))):
        raise NotBeside("a stored value is no number")
    return point


def _scorecard(store: Store, search: SessionRow, measured: Measured, base: Point, until: str) -> list[Point]:
    """The recipes of the scorecard's newest pool of runs of this model at this context. Raises `NotBeside`."""
    arm = store.rows(ArmRow, id=(Events.of(store, search.id).last("arms") or {})["base"])[0]
    runs = [run for run in read_runs(store, machine_key(store, search)) if run.model_sha256 == arm.model_sha256]
    runs = [run for run in runs if not usable(run) and (not until or _ended(store, run) <= until)]
    if not runs:
        return []
    sizes = measured.conf.profile.prompt_tokens, measured.conf.profile.max_tokens
    here = [run for run in runs if run.profile and (run.profile.prompt_tokens, run.profile.decode_tokens) == sizes]
    if not here:
        raise NotBeside(f"{len(runs)} runs of this model, all at another context than {sizes[0]} + {sizes[1]} tokens")
    spec = RecipeSpec(arm.config["stack"], arm.config["kv"])
    plain = spec.config(Path(arm.config["model"]), arm.config["blas"]).as_dict()
    pool = newest_pool(here)
    names = [each.name for each in pool[-1].specs if each.name not in pool[-1].refused]
    units, quality = units_of(pool, names), pool[-1].quality
    if json.loads(canonical(plain)) != arm.config or spec.name not in units.of:
        raise NotBeside("no recipe of it is this base")
    if spec.name not in quality or quality[spec.name].kl.value != 0:
        raise NotBeside("its KL is to another reference than this base")
    found = []
    for name in (each for each in names if each != spec.name and each in units.of and each in quality):
        speeds = units.values(name, SPEED), units.values(spec.name, SPEED)
        quotients = [one / other for one, other in zip(*speeds, strict=True)]
        if any(spread_reasons(quotients, ratio(*speeds), units.kind, pool[-1].limits)):
            continue
        scored = f"forward, {quality[name].scored} positions"
        peaks = [max(float(s.peak_bytes or math.nan) for s in units.samples(each)) for each in (spec.name, name)]
        own = Point(name, tuple(map(math.log, quotients)), peaks[1], {scored: quality[name].kl.value})
        found.append(_comparable(replace(own, peak_bytes=peaks[0]), own, base))
    return found


def _ended(store: Store, run: Run) -> str:
    """When a run of the scorecard ended, as ISO text."""
    row = store.rows(ScorecardRunRow, uid=run.uid)[0]
    return max(event.at for event in store.rows(ScorecardEventRow, run_id=row.id))
