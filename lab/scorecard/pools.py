"""Which runs belong together, and what their samples are as units of an interval. Pure.

Runs are pooled only if source, environment, model, profile and sizes are equal. The unit is a launch: rounds that the
same processes gave differ less among themselves than launches do. With a single launch there is nothing else than its
rounds, and the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.recipes import Sample
from lab.scorecard.runs import Run

Key = tuple[str, ...]


def sizes(run: Run) -> tuple[str, ...]:
    """What must be equal for two numbers to mean the same: model bytes and the tokens of a sample."""
    assert run.profile is not None
    return (run.model_sha256, str(run.profile.prompt_tokens), str(run.profile.decode_tokens))


def pool_key(run: Run) -> Key:
    """Equal for runs that may be pooled."""
    assert run.profile is not None
    kl = (str(run.profile.kl_sequences), str(run.profile.kl_length))
    return (*sizes(run), *kl, run.profile.name, run.arms_sha256, run.env_sha256, run.limits.name)


def usable(run: Run) -> str:
    """Why a run is not shown; "" where it is."""
    if run.outcome == "failed":
        return f"run {run.uid} failed after {len(run.samples)} samples: {run.words}"
    if run.outcome == "open":
        return f"run {run.uid} has not ended ({len(run.samples)} samples): it is running, or was killed"
    if run.profile is None or not run.samples:
        return f"run {run.uid} has no samples"
    return ""


def newest_pool(runs: Sequence[Run]) -> list[Run]:
    """The runs that are pooled with the newest one, oldest first. A full profile goes before a quick one."""
    full = [run for run in runs if run.profile is not None and run.profile.name != "quick"]
    last = (full or list(runs))[-1]
    return [run for run in runs if pool_key(run) == pool_key(last)]


def by_code(runs: Sequence[Run], like: Run) -> list[list[Run]]:
    """The runs of the same model and sizes as `like`, one group for each state of the source, in order of the first.

    A profile of its own is a group of its own: launches count otherwise there.
    """
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        if sizes(run) == sizes(like):
            groups.setdefault(pool_key(run), []).append(run)
    return list(groups.values())


@dataclass(frozen=True)
class Units:
    """The samples of a pool. `of[recipe]`: one list of samples for each unit, the same units for every recipe."""

    kind: Literal["launch", "round"]
    of: Mapping[str, tuple[tuple[Sample, ...], ...]]

    @property
    def count(self) -> int:
        return max((len(units) for units in self.of.values()), default=0)

    def values(self, recipe: str, metric: str) -> list[float]:
        """Geometric mean of each unit. [U]"""
        return [_centre([float(s.__dict__[metric]) for s in unit]) for unit in self.of[recipe]]

    def samples(self, recipe: str) -> list[Sample]:
        return [sample for unit in self.of[recipe] for sample in unit]


def _centre(values: Sequence[float]) -> float:
    """Geometric mean; nan where a value is no positive number."""
    if not all(math.isfinite(value) and value > 0 for value in values):
        return math.nan
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def units_of(runs: Sequence[Run], names: Sequence[str]) -> Units:
    """The units that all of `names` have. A recipe without a sample in any launch of the newest run has none."""
    launches: dict[tuple[str, int], dict[str, list[Sample]]] = {}
    for run in runs:
        for sample in run.samples:
            if sample.recipe in names:
                launches.setdefault((run.uid, sample.launch), {}).setdefault(sample.recipe, []).append(sample)
    newest = {name for (uid, _), held in launches.items() if uid == runs[-1].uid for name in held}
    live = [name for name in names if name in newest]
    whole = [held for held in launches.values() if all(name in held for name in live)]
    if len(whole) >= 2:
        return Units("launch", {n: tuple(tuple(held[n]) for held in whole) for n in live})
    if not whole:
        return Units("round", {})
    rounds = [{s.round for s in whole[0][n]} for n in live]
    common = sorted(set.intersection(*rounds)) if rounds else []
    by_round = {n: {s.round: s for s in whole[0][n]} for n in live}
    return Units("round", {n: tuple((by_round[n][r],) for r in common) for n in live})
