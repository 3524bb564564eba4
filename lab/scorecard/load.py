"""Puts the page of one machine key together from the database, and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine import errors
from lab.scorecard.build import build_model
from lab.scorecard.card import Scorecard
from lab.scorecard.experiments import read_experiments
from lab.scorecard.pools import usable
from lab.scorecard.runs import NothingMeasured, Run, machine_keys, read_runs, require_key
from lab.scorecard.scores import read_scores
from lab.scorecard.suites import read_suites
from lab.scorecard.zoo import checked_here, read_zoo
from lab.store import Store
from lab.tables import MachineRow

MEASURE = "frontier scorecard --measure"


def keys_to_show(store: Store, key: str | None, models: Sequence[str] = ()) -> list[str]:
    """`key`, else every machine key with something to show; with `models` those where all of them were measured.

    Raises `UnknownField` for a key of which there is nothing and for models that no key has together,
    `NothingMeasured` where there is nothing at all.
    """
    if key is not None:
        require_key(store, key)
        return [key]
    shown = [each for each in machine_keys(store) if has_something(store, each)]
    if not shown:
        raise NothingMeasured(f"{store.url}: no run of the scorecard and no decision in it yet; run: {MEASURE}")
    names = {each: {n for run in read_runs(store, each) for n in (run.model, run.timing_model)} for each in shown}
    fitting = [each for each in shown if set(models) <= names[each]]
    if not fitting:
        known = sorted(set().union(*names.values()))
        raise errors.UnknownField("models measured on one machine", " ".join(models), known or ["none yet"])
    return fitting


def has_something(store: Store, key: str) -> bool:
    """Whether a page of this machine key would hold more than what other machines said."""
    return bool(read_runs(store, key) or read_experiments(store, key)[1] or checked_here(store, key))


def load(store: Store, key: str, models: Sequence[str] = ()) -> Scorecard:
    """The scorecard of one machine key, of `models` or of all. Raises `UnknownField` for a model without a run."""
    groups: dict[str, list[Run]] = {}
    for run in read_runs(store, key, models):
        groups.setdefault(run.model_sha256, []).append(run)
    shared = Counter(runs[-1].timing_model for runs in groups.values())
    cards = [(runs, build_model(runs, _label(runs[-1], shared))) for runs in groups.values()]
    built = [card for _, card in cards if card is not None]
    lost = [usable(run) for runs, card in cards if card is None for run in runs]
    experiments, sessions = read_experiments(store, key)
    suites, zoo = read_suites(store, key), read_zoo(store, key)
    names = {name for card in built for name in (card.model, card.timing_model)}
    facts = store.rows(MachineRow, key=key)[-1].facts
    dates = [run.started for runs, _ in cards for run in runs]
    dates += [suite.at for suite in suites] + [session.facts["Started"] for session in sessions]
    dates += [model.at for model in zoo]
    return Scorecard(
        machine_key=key,
        machine=facts,
        date=max(dates, default=""),
        models=tuple(built),
        suites=tuple(suites),
        experiments=tuple(experiments),
        sessions=tuple(sessions),
        scores=tuple(read_scores(store, names)),
        zoo=tuple(zoo),
        notes=tuple(lost) if built or not lost else (*lost, f"No recipe was measured to its end; run: {MEASURE}"),
    )


def _label(run: Run, shared: Mapping[str, int]) -> str:
    """A model's name; two sets of weights under one name also show the beginning of their hash."""
    return run.timing_model if shared[run.timing_model] == 1 else f"{run.timing_model} {run.model_sha256[:8]}"
