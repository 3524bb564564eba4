"""What is wrong with the declared experiments as of a day, and what a further session could find."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from engine import errors
from lab import stats
from lab.config import LabConf, compose_all, experiments_folder, names
from lab.declared import EXPLORE
from lab.evidence import standing
from lab.measure import full_launches, group_quads
from lab.metrics import DRAWN, TIMED, TOGETHER
from lab.record import read_samples
from lab.store import Store
from lab.tables import ExperimentRow
from lab.targets import is_decided, latest
from lab.tree import Tree


def parse_day(text: str) -> date:
    """A day in ISO form. Raises `InvalidValue`."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise errors.InvalidValue("--as-of", text, "a date like 2026-11-29") from error


def audit(store: Store | None, today: date, *, folder: Path | None = None) -> tuple[list[str], list[str]]:
    """(problems, warnings) as of a day. Without a database the files alone are judged: a clone has none.

    Problems: a file that cannot be read; an experiment past its expiry without a decision; with a database, a file
    without a row there and a row without a file or a breadcrumb; code that lost and is still in the tree after its
    day. An undecided verdict, and a candidate that was only screened, is no decision; an entry of reports/log.md stands
    for one. A file that was never run is a warning until it expires.
    """
    problems, warnings = [], []
    files = names(folder)
    found, wrong = compose_all(folder)
    problems += [f"{name} cannot be read: {error}" for name, error in wrong.items()]
    tree = Tree(experiments_folder(folder).parent)
    logged = {entry.name: entry.what for entry in tree.entries()}
    for name, conf in found.items():
        expires = date.fromisoformat(conf.experiment.expires_on)
        decisions = standing(store, conf).counts if store else ()
        decided = any(is_decided(d.verdict) for d in latest(decisions).values()) or name in logged
        if today > expires and not decided:
            problems.append(f"{name} expired on {expires} without a decision")
        elif not decided and not latest(decisions):
            ends = [store.outcome(s.id) for s in store.sessions(name) if s.purpose != EXPLORE] if store else []
            ran = f"was run {len(ends)} times ({', '.join(ends)}) without a verdict" if ends else "was not run yet"
            warnings.append(f"{name} {ran}; {(expires - today).days} days to its expiry")
        if store and store.experiment(name) is None:
            problems.append(f"{name} has a file and no row: frontier lab new {name} enters it")
        if logged.get(name) == "deleted":
            warnings.append(f"{name} was deleted and its file is still there")
    if store:
        ended = store.breadcrumbs() | logged.keys()
        for row in store.rows(ExperimentRow):
            if row.name not in files and row.name not in ended:
                problems.append(f"{row.name} has a row but neither a file nor a breadcrumb")
    if tree.table.is_file():
        problems += tree.overdue(str(today))
    return problems, warnings


def power(conf: LabConf, store: Store | None) -> list[dict[str, Any]]:
    """Smallest effect at each planned look for each timed metric. `mde` None: no finite effect."""
    per_launch = conf.profile.quads_per_launch
    rows = []
    for metric in [
        m for m in (conf.experiment.primary, *conf.experiment.guardrails) if m in (*TIMED, *TOGETHER, *DRAWN)
    ]:
        sd, source = _last_sd(conf, store, metric, per_launch)
        for spend in conf.profile.spends:
            effect = stats.mde(sd, spend.quads // per_launch)
            finite = None if effect == float("inf") else effect
            rows.append({"metric": metric, "quads": spend.quads, "sd": sd, "mde": finite, "from": source})
    return rows


def _last_sd(conf: LabConf, store: Store | None, metric: str, per_launch: int) -> tuple[float, str]:
    sessions = store.sessions(conf.experiment.name) if store else []
    for session in reversed([s for s in sessions if s.purpose != EXPLORE]):
        assert store is not None
        quads = group_quads(read_samples(store, session.id), "aa")
        launches = full_launches(quads, metric, per_launch)
        _, sd = stats.mean_sd(stats.launch_means(launches))
        if sd > 0:
            return sd, f"A/A of session {session.uid}, {len(launches)} launches"
    return conf.machine.sd_limit, f"the limit of machine class {conf.machine.name}; no A/A of two launches yet"
