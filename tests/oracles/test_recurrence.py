"""Recurrences: the path that has mlx-lm's bits against its plain form, and the switch between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import errors, load
from engine.graph.delta_net import decay, delta_rule, unit
from engine.graph.families import build_spec
from engine.graph.plain import plain_recurrences
from oracles.architectures import ArchRun
from oracles.recipe import Form, find_recipe, recipes

IDS = tuple(range(2, 30))
# Their states are pasts of convolutions, windows or ids; recurrent_gemma's recurrence is plain as mlx-lm runs it.
ONE_FORM = {"baichuan_m1", "deepseek_v41", "gear", "lfm2", "lfm2-vl", "lfm2_moe", "longcat_flash_ngram"}
ONE_FORM |= {"bailing_moe_linear", "deepseek_v41_text", "falcon_mamba", "mamba", "recurrent_gemma"}
B, L, K, H, E, V = 2, 7, 2, 4, 32, 24


def inputs(gate: str) -> tuple[Any, ...]:
    """q, k [B, L, K, E], v [B, L, H, V], g [B, L, H] or [B, L, H, E], beta [B, L, H], drawn."""
    keys = mx.random.split(mx.random.key(3), 5)
    q, k = unit(*(mx.random.normal((B, L, K, E), key=key) for key in keys[:2]))
    v, beta = mx.random.normal((B, L, H, V), key=keys[2]), mx.sigmoid(mx.random.normal((B, L, H), key=keys[3]))
    a = mx.random.normal((B, L, H) if gate == "scalar" else (B, L, H, E), key=keys[4])
    return q, k, v, decay(mx.zeros(()), a, mx.array(-1.0)), beta


@pytest.mark.parametrize("gate", ["scalar", "vector"])
def test_the_compiled_step_is_the_plain_one_wherever_calls_begin(gate: str) -> None:
    drawn = inputs(gate)
    y, state = delta_rule(*drawn, None)
    plain, plain_state = delta_rule(*drawn, None, plain=True)
    assert mx.array_equal(y, plain)
    assert mx.array_equal(state, plain_state)
    head, between = delta_rule(*(x[:, :3] for x in drawn), None)
    tail, last = delta_rule(*(x[:, 3:] for x in drawn), between)
    assert mx.array_equal(mx.concatenate([head, tail], axis=1), y)
    assert mx.array_equal(last, state)


@pytest.mark.parametrize("gate", ["scalar", "vector"])
def test_the_step_is_the_delta_rule_of_the_textbook(gate: str) -> None:
    """S <- S diag(g) (1 - beta k k^T) + beta v k^T, y = S q, in float64; the bound is float32's rounding of 7 steps."""
    drawn = inputs(gate)
    q, k, v, g, beta = (np.array(x, np.float64) for x in drawn)
    q, k = np.repeat(q, H // K, axis=2), np.repeat(k, H // K, axis=2)
    g = np.broadcast_to(g if gate == "vector" else g[..., None], (B, L, H, E))
    expected = np.zeros((B, L, H, V))
    for b in range(B):
        for h in range(H):
            memory = np.zeros((V, E))
            for t in range(L):
                key, rate = k[b, t, h], beta[b, t, h]
                memory = memory * g[b, t, h]
                memory = memory @ (np.eye(E) - rate * np.outer(key, key)) + rate * np.outer(v[b, t, h], key)
                expected[b, t, h] = memory @ q[b, t, h]
    # float32 against float64, seven steps of a memory whose values are below 1.
    np.testing.assert_allclose(np.array(delta_rule(*drawn, None)[0]), expected, atol=1e-6)


def test_the_switch_gives_the_same_logits_where_the_order_is_the_same(tmp_path: Path) -> None:
    with ArchRun(root=tmp_path) as run:
        folder, _ = run.build(find_recipe("olmo_hybrid"), Form())
    assert isinstance(folder, Path)
    with load(folder) as fast, load(folder, recurrence="plain") as plain:
        assert plain.config.recurrence == "plain"
        assert mx.array_equal(fast.logits(IDS), plain.logits(IDS))


def test_a_model_with_one_form_refuses_the_other() -> None:
    with pytest.raises(errors.InvalidValue, match="recurrence='plain' is not allowed; allowed: fast: gear has no"):
        plain_recurrences(build_spec(find_recipe("gear").config))


def test_every_recurrence_has_the_switch() -> None:
    without = set()
    for recipe in recipes().values():
        try:
            spec = build_spec(recipe.config)
        except errors.NotBuilt:
            continue
        if any(cache.kind == "state" for cache in spec.caches):
            try:
                plain_recurrences(spec)
            except errors.InvalidValue:
                without.add(recipe.config["model_type"])
    assert without == ONE_FORM
