"""Which recipes stand on the frontier: epsilon-dominance, bootstrap, hypervolume. Pure: no I/O, no MLX.

A dominates B if A is no worse than B by more than eps on every axis, and better by more than eps on one. On a ratio
axis eps = max(1 %, half-width of the paired interval of ln A - ln B); on the quality axis eps = max(1e-4 nats,
half-width of the paired interval of the difference). `moocore` supplies exact non-dominance and the hypervolume.
Letters: N recipes, A axes, U units (rounds or sequences), R bootstrap draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import moocore
import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from engine import errors
from lab.metrics import metric

Floats = NDArray[np.float64]
BOOTSTRAP_DRAWS = 2000
NEW_FRONTIER_P = 0.9
BLOCK_VALUES = 4_000_000


@dataclass(frozen=True)
class Axis:
    """One axis of the frontier. `ratio`: compared as a log ratio, else as a difference; `eps` is the least margin.

    `reach`: how far from the reference recipe the worst counted point lies (a ratio, or the axis's own unit);
    it is the reference point of the hypervolume.
    """

    name: str
    ratio: bool
    eps: float
    reach: float

    @property
    def higher(self) -> bool:
        return metric(self.name).better == "higher"


AXES = (
    Axis("decode_tok_s", True, 0.01, 2.0),
    Axis("peak_bytes", True, 0.01, 2.0),
    Axis("artifact_bytes", True, 0.01, 2.0),
    Axis("kl_nats", False, 1e-4, 0.25),
)


@dataclass(frozen=True)
class Recipe:
    """`units[axis]`: the recipe's values per round (timing) or per sequence (KL); one value where it is counted.

    Recipes of one frontier are paired: unit i of an axis was taken in the same round, or on the same sequence.
    """

    name: str
    units: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class FrontierResult:
    """`on[name]`: nobody epsilon-dominates it. `p_on`: bootstrap share, None with under two rounds.

    `dominated_by[name]`: who does. `exact`: plain non-dominance by moocore on the point values.
    `hypervolume[group]`: (value, low, high); low and high are None where there is nothing to resample.
    """

    on: Mapping[str, bool]
    p_on: Mapping[str, float | None]
    dominated_by: Mapping[str, tuple[str, ...]]
    exact: Mapping[str, bool]
    eps: Mapping[str, float]
    hypervolume: Mapping[str, tuple[float, float | None, float | None]] = field(default_factory=dict)


def _cost_units(recipes: Sequence[Recipe], axis: Axis) -> Floats:
    """[N, U]; lower is better, logs on a ratio axis."""
    rows = [np.asarray(r.units[axis.name], dtype=np.float64) for r in recipes]
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise errors.InvalidValue(
            f"units of {axis.name}", sorted(lengths), "the same number, at least 1, in each recipe"
        )
    values = np.stack(rows)
    if not np.isfinite(values).all() or (axis.ratio and (values <= 0).any()):
        raise errors.InvalidValue(f"units of {axis.name}", values.tolist(), "finite, and positive on a ratio axis")
    costs = np.log(values) if axis.ratio else values
    return -costs if axis.higher else costs


def _half_widths(costs: Floats) -> Floats:
    """[N, N] half-width of the paired 95 % t interval of the difference of two recipes; 0 for a single unit."""
    n, units = costs.shape
    if units < 2:
        return np.zeros((n, n))
    gaps = costs[:, None, :] - costs[None, :, :]  # [N, N, U]
    sd = gaps.std(axis=2, ddof=1)
    return np.asarray(scipy_stats.t.ppf(0.975, units - 1) * sd / np.sqrt(units))


def dominance(costs: Floats, eps: Floats) -> NDArray[np.bool_]:
    """`out[i, j]`: i epsilon-dominates j. costs [..., N, A], lower is better; eps [N, N, A] -> [..., N, N]."""
    gain = costs[..., None, :, :] - costs[..., :, None, :]  # [..., i, j, A] = cost of j minus cost of i
    return np.logical_and(np.all(gain >= -eps, axis=-1), np.any(gain > eps, axis=-1))


def share_undominated(draws: Floats, eps: Floats) -> Floats:
    """Share of the draws in which nobody dominates a recipe. draws [R, N, A], eps [N, N, A] -> [N].

    Draws go in blocks: all pairs of many recipes at once would not fit into memory.
    """
    block = max(1, BLOCK_VALUES // eps.size)
    free = np.zeros(draws.shape[1])
    for begin in range(0, len(draws), block):
        free += (~dominance(draws[begin : begin + block], eps).any(axis=-2)).sum(axis=0)
    return np.asarray(free / len(draws))


def _resample(units: Sequence[Floats], draws: int, seed: int) -> Floats:
    """[R, N, A]: means over units drawn with replacement, the same draw for all recipes of an axis.

    Axes with the same number of units above one share their draws only if they are the same kind of unit; timing
    and counted axes come from rounds, the quality axis from sequences, so each axis draws from its own stream.
    """
    out = []
    for position, values in enumerate(units):
        rng = np.random.Generator(np.random.PCG64([seed, position]))
        picks = rng.integers(0, values.shape[1], size=(draws, values.shape[1]))  # [R, U]
        out.append(values[:, picks].mean(axis=2).T)  # [R, N]
    return np.stack(out, axis=2)


def _hypervolume(costs: Floats, origin: Floats, reach: Floats) -> float:
    """Share of the box between `reach` behind the origin and twice that ahead of it that the points dominate."""
    scaled = (costs - origin) / reach  # [N, A]: 0 at the reference recipe, 1 at the worst counted point
    clipped = np.maximum(scaled, -1.0)
    return float(moocore.hypervolume(clipped, ref=np.ones(costs.shape[1]))) / 2.0 ** costs.shape[1]


def frontier(
    recipes: Sequence[Recipe],
    *,
    reference: str,
    axes: Sequence[Axis] = AXES,
    groups: Mapping[str, Sequence[str]] | None = None,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = 20,
) -> FrontierResult:
    """Epsilon-frontier of `recipes`. `groups`: label -> recipe names whose joint hypervolume is wanted.

    With more than two axes epsilon-dominance can run in a circle, so `on` may be empty; `exact` never is.
    Errors: a recipe that lacks an axis, unequal numbers of units, an unknown reference.
    """
    names = [r.name for r in recipes]
    if reference not in names:
        raise errors.UnknownField("frontier reference", reference, names)
    for recipe in recipes:
        for axis in axes:
            if axis.name not in recipe.units:
                raise errors.UnknownField(f"axes of {recipe.name}", axis.name, recipe.units)
    units = [_cost_units(recipes, axis) for axis in axes]
    costs = np.stack([u.mean(axis=1) for u in units], axis=1)  # [N, A]
    least = np.array([np.log1p(a.eps) if a.ratio else a.eps for a in axes])
    eps = np.stack([np.maximum(_half_widths(u), floor) for u, floor in zip(units, least, strict=True)], axis=2)
    beats = dominance(costs, eps)
    exact = moocore.is_nondominated(costs, keep_weakly=True)
    resampled = _resample(units, draws, seed) if max(u.shape[1] for u in units) > 1 else None
    p_on: dict[str, float | None] = dict.fromkeys(names)
    if resampled is not None and units[0].shape[1] > 1:
        share = share_undominated(resampled, eps)
        p_on = {name: float(p) for name, p in zip(names, share, strict=True)}
    reach = np.array([np.log(a.reach) if a.ratio else a.reach for a in axes])
    origin_row = names.index(reference)
    volumes: dict[str, tuple[float, float | None, float | None]] = {}
    for label, members in (groups or {}).items():
        rows = [names.index(m) for m in members]
        value = _hypervolume(costs[rows], costs[origin_row], reach)
        low: float | None = None
        high: float | None = None
        if resampled is not None:
            spread = [_hypervolume(draw[rows], draw[origin_row], reach) for draw in resampled]
            low, high = (float(q) for q in np.quantile(spread, [0.025, 0.975]))
        volumes[label] = (value, low, high)
    widest = eps.max(axis=(0, 1))
    return FrontierResult(
        on={name: not beats[:, i].any() for i, name in enumerate(names)},
        p_on=p_on,
        dominated_by={name: tuple(names[j] for j in np.flatnonzero(beats[:, i])) for i, name in enumerate(names)},
        exact={name: bool(x) for name, x in zip(names, exact, strict=True)},
        eps={a.name: float(np.expm1(w) if a.ratio else w) for a, w in zip(axes, widest, strict=True)},
        hypervolume=volumes,
    )
