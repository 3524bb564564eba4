"""The end of an experiment, or two weeks more of it: what promote, delete and extend would do, and doing it.

A step is planned first and refused there if it may not be taken; a plan changes nothing until `act` is called.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from engine import Lever, Variant, errors
from lab.arms import ARM_LEVERS, stated
from lab.config import LabConf, compose, names
from lab.edits import staged
from lab.evidence import standing
from lab.grounds import Evidence, gather
from lab.store import Store, now
from lab.tables import BreadcrumbRow, DecisionRow
from lab.targets import all_say_no, all_say_yes, by_target, failed_gates, is_decided, latest, says_yes
from lab.tree import Tree, removal_of, set_default, table_text, unregister, write_text

REMOVAL_DAYS = 14


class NotDecided(errors.FrontierError):
    """Nothing that was decided allows the step; the message says what was decided where."""


@dataclass(frozen=True)
class LeverStep:
    """One lever of the experiment: its candidate's and its base's value, and what happens to the table."""

    lever: Lever
    candidate: str | int
    base: str | int
    does: str
    removes: str = ""


@dataclass(frozen=True)
class Plan:
    """What a step would do, in words and for `act`. steps: of the table; by: the day until which code is to go."""

    name: str
    what: str
    day: date
    words: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    steps: tuple[LeverStep, ...] = ()
    machine_key: str = ""
    hypothesis: str = ""
    state: str = ""
    removes_file: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def by(self) -> str:
        return str(self.day + timedelta(days=REMOVAL_DAYS))

    def log_lines(self) -> list[str]:
        """The entry of the log."""
        facts = [f"- {row.words}" for row in self.evidence]
        return [self.hypothesis.strip(), "", *facts, *(f"- {word}" for word in (*self.words, *self.notes))]


def _levers(conf: LabConf, tree: Tree) -> list[tuple[Lever, str | int, str | int]]:
    """(lever, candidate's value, base's value) of each lever that stands in the table."""
    levers, e = tree.levers(), conf.experiment
    named = [name for name in e.lever if name in ARM_LEVERS]
    return [(levers[ARM_LEVERS[n]], e.candidate.__dict__[n], e.base.__dict__[n]) for n in named]


def _said(rows: Mapping[str, Sequence[DecisionRow]], left_out: Sequence[str]) -> str:
    """What each target decided, key by key, and what does not count."""
    words = []
    for target, found in rows.items():
        words += [f"{row.machine_key}: {row.verdict}" for row in found] or [f"{target}: no decision"]
    return ", ".join(words) + _beside(left_out)


def _beside(left_out: Sequence[str]) -> str:
    return f"; does not count: {'; '.join(left_out)}" if left_out else ""


def plan_promote(conf: LabConf, store: Store, tree: Tree, today: date, machine_key: str | None = None) -> Plan:
    """Make the candidate the default on one machine key: `machine_key`, else the only one that says so.

    Raises `NotDecided` unless the last decision there that counts says promote or default, and while the gate fails on
    any machine key; `InvalidValue` for a lever that has no default in the engine's table.
    """
    e = conf.experiment
    found = standing(store, conf)
    decisions, last = found.counts, latest(found.counts)
    wins = {key: row for key, row in last.items() if says_yes(row.verdict)}
    if machine_key is None and len(wins) > 1:
        raise errors.InvalidValue("--machine", None, tuple(sorted(wins)))
    key = machine_key or next(iter(wins), "")
    if key not in wins:
        said = {k: row.verdict for k, row in last.items()}
        where = f" on {machine_key}" if machine_key else ""
        decided = f"decided: {said or 'nothing'}{_beside(found.left_out)}"
        raise NotDecided(f"{e.name}: no decision{where} says promote or default; {decided}")
    broken = failed_gates(decisions)
    if broken:
        where = ", ".join(f"{row.machine_key} (decision {row.id})" for row in broken)
        raise NotDecided(f"{e.name}: its gate fails on {where}; repair it and decide there again before it is promoted")
    steps, words = [], []
    every = all_say_yes(e.targets, decisions)
    if "stack" in e.lever:
        raise errors.InvalidValue("lever", "stack", "levers of the engine: another stack cannot become its default")
    for lever, candidate, base in _levers(conf, tree):
        if lever.where != "engine":
            when = "as a process starts" if lever.where == "process" else "by each request"
            raise errors.InvalidValue("lever", lever.name, f"levers of the engine: this one is chosen {when}")
        loser = only_of(lever, base, candidate)[0]
        own = loser.kind == "ours" and loser not in lever.variants_of(candidate)
        removes = loser.name if own and every else ""
        steps.append(LeverStep(lever, candidate, base, "default", removes))
        words.append(f"engine/levers.json: {lever.name}={candidate} becomes the default on {key}, in place of {base}")
        words.append(_about_loser(lever, loser, removes, every, today))
    by = by_target(e.targets, decisions).values()
    done = all(rows and all(is_decided(row.verdict) for row in rows) for rows in by)
    notes = (
        () if e.quality_class == "L" else (f"class {e.quality_class}: bits differ from mlx-lm's unless --l1 is given",)
    )
    promoted = tuple(gather(store, [wins[key]]))
    return Plan(
        name=e.name,
        what="promoted",
        day=today,
        words=tuple(words),
        evidence=promoted,
        steps=tuple(steps),
        machine_key=key,
        hypothesis=e.hypothesis,
        state="promoted" if done else "measuring",
        notes=notes,
    )


def only_of(lever: Lever, value: str | int, other: str | int) -> tuple[Variant, ...]:
    """The variants of one value that another one is not of; where there is none, what the value is called by."""
    shared = lever.variants_of(other)
    return tuple(v for v in lever.variants_of(value) if v not in shared) or (lever.variant(value),)


def _about_loser(lever: Lever, loser: Variant, removes: str, every: bool, today: date) -> str:
    if removes:
        files = ", ".join(loser.files) or "its entry in engine/levers.json"
        until = today + timedelta(days=REMOVAL_DAYS)
        return f"the losing path {lever.name}={removes} is to be removed by {until}: {files}"
    if loser.kind != "ours":
        return f"the losing path {lever.name}={loser.name} stays: mlx-lm or optiq ships it"
    why = "other targets have not decided for it" if not every else "the winner is a value of the same path"
    return f"the losing path {lever.name}={loser.name} stays: {why}"


def plan_delete(conf: LabConf, store: Store, tree: Tree, today: date) -> Plan:
    """End an experiment that won nowhere. Its candidate's path goes from the table where it is ours and every target
    said no, on each of its machine keys; at the expiry an experiment ends whatever is still open, and its code stays.

    Raises `NotDecided` without a decision, while a target may still win, or where one has.
    """
    e = conf.experiment
    found = standing(store, conf)
    decisions, rows = found.counts, by_target(e.targets, found.counts)
    if not decisions:
        raise NotDecided(
            f"{e.name}: no decision is recorded that counts; run it, or let it be decided: frontier lab run {e.name}"
            f"{_beside(found.left_out)}"
        )
    winners = [row.machine_key for row in latest(decisions).values() if says_yes(row.verdict)]
    if winners:
        raise NotDecided(f"{e.name}: it won on {', '.join(winners)}; decided: {_said(rows, found.left_out)}")
    expired = today > date.fromisoformat(e.expires_on)
    unanimous = all_say_no(e.targets, decisions)
    if not unanimous and not expired:
        raise NotDecided(
            f"{e.name}: not every target said no, and it expires on {e.expires_on}; "
            f"decided: {_said(rows, found.left_out)}"
        )
    steps, words = [], [f"experiments/{e.name}.yaml is removed"]
    for lever, candidate, base in _levers(conf, tree):
        lost = only_of(lever, candidate, base)
        variant = lost[0]
        why = _kept(lever, lost, base, unanimous) or _used(lever, variant.name, tree, e.name)
        if why:
            words += [f"{lever.name}={each.name} stays registered: {why}" for each in lost]
            continue
        steps.append(LeverStep(lever, candidate, base, "unregister", variant.name))
        files = ", ".join(variant.files) or "no file of its own"
        until = today + timedelta(days=REMOVAL_DAYS)
        words.append(
            f"engine/levers.json: {lever.name}={variant.name} is unregistered; to be removed by {until}: {files}"
        )
    last = list(latest(decisions).values()) or [decisions[-1]]
    return Plan(
        name=e.name,
        what="deleted",
        day=today,
        words=tuple(words),
        evidence=tuple(gather(store, last)),
        steps=tuple(steps),
        hypothesis=e.hypothesis,
        state="deleted",
        removes_file=True,
        notes=() if unanimous else (f"ended by its expiry: {_said(rows, found.left_out)}",),
    )


def _kept(lever: Lever, lost: Sequence[Variant], base: str | int, unanimous: bool) -> str:
    """Why the candidate's own variants stay in the table; "" where the only one goes."""
    variant = lost[0]
    if len(lost) > 1:
        return f"{' and '.join(each.name for each in lost)} lost together, and which of them did is not known"
    if variant in lever.variants_of(base):
        return "the base is of it too"
    if variant.kind != "ours":
        return "mlx-lm or optiq ships it"
    if not unanimous:
        return "not every target said no"
    if any(variant in lever.variants_of(value) for value in (lever.default, *lever.machines.values())):
        return "it is a default"
    return ""


def _used(lever: Lever, variant: str, tree: Tree, name: str) -> str:
    """Which other experiments have an arm of that variant, in words; "" for none. Raises what `compose` raises of a
    file that cannot be read: it may be one of them."""
    found = []
    field_name = next(field_ for field_, lever_name in ARM_LEVERS.items() if lever_name == lever.name)
    for other in names(tree.experiments):
        e = compose(other, folder=tree.experiments).experiment
        values = [value for arm in (e.base, e.candidate) if stated(field_name, value := arm.__dict__[field_name])]
        if other != name and any(variant == each.name for value in values for each in lever.variants_of(value)):
            found.append(other)
    return f"{', '.join(found)} uses it too" if found else ""


def act(plan: Plan, store: Store, tree: Tree) -> None:
    """Do what was planned: the rows of the database and the files change together, or nothing does.

    Raises `NotWritable`, `BadDatabase`, and what `read_levers` raises of a table that would be wrong.
    """
    row = store.experiment(plan.name)
    assert row is not None  # a decision refers to it
    lines = plan.log_lines()
    texts: dict[Path, str | None] = {tree.log: tree.log_with(str(plan.day), plan.name, plan.what, lines)}
    if plan.steps:
        texts[tree.table] = table_text(_edited(plan, tree))
    if plan.removes_file:
        texts[tree.experiment(plan.name)] = None
    text = "\n".join((f"{plan.what} {plan.day}", *lines))
    breadcrumb = BreadcrumbRow(experiment_name=plan.name, at=now(), text=text)
    with staged(texts) as changes:
        store.end_experiment(row.id, plan.state, breadcrumb, changes.commit)


def _edited(plan: Plan, tree: Tree) -> dict[str, Any]:
    """The table of levers after the plan."""
    table = tree.read_table()
    for step in plan.steps:
        removal = removal_of(step.lever, step.removes, plan.by, plan.name) if step.removes else None
        if step.does == "default":
            set_default(table, step.lever.name, plan.machine_key, step.candidate, removal)
        else:
            assert removal is not None
            unregister(table, step.lever.name, step.removes, removal)
    return table


def plan_extend(conf: LabConf, tree: Tree, today: date, reason: str) -> tuple[str, str]:
    """(the declaration with its new expiry and the reason, that day), as it composes. Once only.

    Raises `InvalidValue` without a reason, a second time, or when even the new day is past, and what `compose` raises.
    """
    e = conf.experiment
    if not reason.strip():
        raise errors.InvalidValue("--reason", reason, "a sentence that says why")
    if e.extension_reason:
        raise errors.InvalidValue("experiment", e.name, f"one not yet extended; this one was: {e.extension_reason}")
    until = date.fromisoformat(e.expires_on) + timedelta(days=conf.thresholds.extension_days)
    if today > until:
        raise errors.InvalidValue("experiment", e.name, f"extended until {until} at most, and that is past; delete it")
    text = tree.experiment(e.name).read_text(encoding="utf-8")
    text = re.sub(r"^extension_reason:.*\n?", "", text, flags=re.MULTILINE)
    line = f'expires_on: "{until}"\nextension_reason: {json.dumps(reason.strip(), ensure_ascii=False)}'
    text = re.sub(r"^expires_on:.*$", lambda _found: line, text, flags=re.MULTILINE)
    if check_declaration(e.name, text).experiment.expires_on != str(until):
        raise errors.InvalidValue(
            f"experiments/{e.name}.yaml", "its expires_on", "a line of its own, as lab new writes"
        )
    return text, str(until)


def check_declaration(name: str, text: str) -> LabConf:
    """Compose a declaration that is not in the tree. Raises what `compose` raises."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "experiments"
        folder.mkdir()
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        return compose(name, folder=folder)


def write_declaration(tree: Tree, name: str, text: str) -> LabConf:
    """Write a declaration that composes and passes every check; one that does not leaves the tree as it was."""
    conf = check_declaration(name, text)
    write_text(tree.experiment(name), text)
    return conf
