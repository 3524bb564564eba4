"""The epsilon rule against brute force, the bootstrap and the hypervolume against hand-made cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from engine import errors
from lab.frontier import AXES, Axis, Recipe, dominance, frontier


def brute_dominates(a: list[float], b: list[float], eps: list[float]) -> bool:
    """The sentence of the method page, word by word, on costs."""
    for x, y, e in zip(a, b, eps, strict=True):
        if x - y > e:
            return False
    return any(y - x > e for x, y, e in zip(a, b, eps, strict=True))


def recipe(name: str, decode: list[float], peak: float, artifact: float, kl: list[float]) -> Recipe:
    return Recipe(name, {"decode_tok_s": decode, "peak_bytes": [peak], "artifact_bytes": [artifact], "kl_nats": kl})


def test_dominance_against_brute_force() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        n, a = int(rng.integers(2, 7)), int(rng.integers(1, 5))
        costs = rng.integers(0, 6, size=(n, a)).astype(float)
        eps = rng.integers(0, 3, size=(n, n, a)).astype(float)
        got = dominance(costs, eps)
        for i in range(n):
            for j in range(n):
                want = brute_dominates(costs[i].tolist(), costs[j].tolist(), eps[i, j].tolist())
                assert got[i, j] == want
                hits += want
    assert hits > 100


def test_a_margin_of_exactly_eps_is_a_tie() -> None:
    costs = np.array([[0.0], [1.0]])
    assert not dominance(costs, np.full((2, 2, 1), 1.0)).any()
    assert dominance(costs, np.full((2, 2, 1), 0.999))[0, 1]


def test_single_values_use_the_least_margins() -> None:
    base = recipe("base", [10.0], 100.0, 100.0, [0.0])
    close = recipe("close", [9.95], 100.5, 100.0, [5e-5])
    worse = recipe("worse", [9.8], 100.0, 100.0, [0.0])
    leaner = recipe("leaner", [9.8], 90.0, 100.0, [0.0])
    result = frontier([base, close, worse, leaner], reference="base")
    assert result.on == {"base": True, "close": True, "worse": False, "leaner": True}
    assert set(result.dominated_by["worse"]) == {"base", "close", "leaner"}
    assert result.p_on == dict.fromkeys(("base", "close", "worse", "leaner"))
    assert result.exact == {"base": True, "close": False, "worse": False, "leaner": True}
    assert math.isclose(result.eps["decode_tok_s"], 0.01)


def test_noise_widens_eps_to_the_paired_half_width() -> None:
    shared = np.array([10.0, 14.0, 8.0, 12.0])
    wobble = np.array([1.0, 0.7, 1.3, 0.8])
    steady = recipe("steady", (shared * 1.05).tolist(), 100.0, 100.0, [0.0, 0.0])
    base = recipe("base", shared.tolist(), 100.0, 100.0, [0.0, 0.0])
    noisy = recipe("noisy", (shared * wobble).tolist(), 100.0, 100.0, [0.0, 0.0])
    result = frontier([base, steady, noisy], reference="base")
    assert not result.on["base"], "a paired 5 % gap is clear although rounds differ by 75 %"
    assert result.on["noisy"], "its own spread is wider than its deficit"
    gap = np.log(wobble) - np.log(1.05)
    half = scipy_stats.t.ppf(0.975, 3) * gap.std(ddof=1) / 2
    assert math.isclose(result.eps["decode_tok_s"], math.expm1(half), rel_tol=1e-12)


def test_bootstrap_probability_moves_with_the_evidence() -> None:
    rng = np.random.default_rng(2)
    n = 30
    base = recipe("base", (10 * np.exp(rng.normal(0, 0.02, n))).tolist(), 100.0, 100.0, [0.0])
    slow = recipe("slow", (7 * np.exp(rng.normal(0, 0.02, n))).tolist(), 100.0, 100.0, [0.0])
    edge_values = 10 * np.exp(rng.normal(0, 0.02, n))
    edge_values *= np.exp(np.log(base.units["decode_tok_s"]).mean() - 0.0135 - np.log(edge_values).mean())
    edge = recipe("edge", edge_values.tolist(), 100.0, 100.0, [0.0])
    result = frontier([base, slow, edge], reference="base")
    assert result.p_on["base"] == 1.0
    assert result.p_on["slow"] == 0.0
    assert result.p_on["edge"] is not None
    assert 0.05 < result.p_on["edge"] < 0.95
    again = frontier([base, slow, edge], reference="base")
    assert again == result, "fixed seed"


def test_circular_epsilon_dominance_leaves_exact_points() -> None:
    axes = tuple(Axis(name, False, 1.0, 10.0) for name in ("ttft_ms", "tpot_ms", "kl_nats"))
    rows = {"a": (0.0, 0.0, 0.0), "b": (1.1, -0.9, -0.9), "c": (0.2, 0.2, -1.8)}
    recipes = [Recipe(name, {a.name: [v] for a, v in zip(axes, row, strict=True)}) for name, row in rows.items()]
    result = frontier(recipes, reference="a", axes=axes)
    assert not any(result.on.values())
    assert any(result.exact.values())


def test_hypervolume_of_the_reference_and_of_a_dominating_recipe() -> None:
    base = recipe("base", [10.0], 100.0, 100.0, [0.0])
    best = recipe("best", [20.0], 50.0, 50.0, [0.0])
    groups = {"base": ["base"], "best": ["best"], "both": ["base", "best"]}
    volume = frontier([base, best], reference="base", groups=groups).hypervolume
    assert math.isclose(volume["base"][0], 1 / 16)
    assert math.isclose(volume["best"][0], 8 / 16)
    assert volume["both"] == volume["best"] == (volume["best"][0], None, None)


def test_bad_input_is_named() -> None:
    base = recipe("base", [10.0, 11.0], 100.0, 100.0, [0.0])
    with pytest.raises(errors.UnknownField, match="known: base"):
        frontier([base], reference="other")
    with pytest.raises(errors.InvalidValue, match="decode_tok_s"):
        frontier([base, recipe("odd", [10.0], 1.0, 1.0, [0.0])], reference="base")
    with pytest.raises(errors.InvalidValue, match="positive"):
        frontier([recipe("base", [0.0], 1.0, 1.0, [0.0])], reference="base")
    with pytest.raises(errors.UnknownField, match="kl_nats"):
        frontier([Recipe("base", {"decode_tok_s": [1.0]})], reference="base", axes=(AXES[0], AXES[3]))


def test_blocks_of_draws_give_what_all_of_them_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted break: a last block that is shorter and counted as a whole one."""
    from lab import frontier as module

    draws = np.random.default_rng(3).normal(size=(101, 7, 4))
    eps = np.full((7, 7, 4), 0.1)
    whole = (~dominance(draws, eps).any(axis=-2)).mean(axis=0)
    monkeypatch.setattr(module, "BLOCK_VALUES", 10 * eps.size)
    assert module.share_undominated(draws, eps).tolist() == whole.tolist()
