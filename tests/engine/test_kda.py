"""Kimi delta attention: the compiled recurrence against the plain one and the textbook's, chunks, and decay bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.graph.block_residuals import BlockMean, BlockMeanSpec, keep_sum
from engine.graph.delta_net import bounded_decay, delta_rule
from engine.graph.families import build_spec
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, HeadSpec
from oracles.recipe import find_recipe

B, L, H, E = 2, 9, 3, 8


def inputs() -> dict[str, mx.array]:
    """q, k, v, g [B, L, H, E], a decay per channel, and beta [B, L, H]."""
    keys = mx.random.split(mx.random.key(5), 5)
    q, k, v, g = (mx.random.normal((B, L, H, E), key=key) for key in keys[:4])
    beta = mx.sigmoid(mx.random.normal((B, L, H), key=keys[4]))
    return {"q": q / E, "k": k / E**0.5, "v": v, "g": mx.sigmoid(g + 2), "beta": beta}


def textbook(given: Mapping[str, mx.array]) -> tuple[np.ndarray, np.ndarray]:
    """S <- (I - beta k k^T) Diag(g) S + beta k v^T and y = S^T q, in float64; S is [E, V]."""
    q, k, v, g, beta = (np.array(given[name], dtype=np.float64) for name in ("q", "k", "v", "g", "beta"))
    state, out = np.zeros((B, H, E, E)), np.zeros((B, L, H, E))
    for b in range(B):
        for h in range(H):
            for t in range(L):
                key = k[b, t, h][:, None]
                state[b, h] = (np.eye(E) - beta[b, t, h] * key @ key.T) @ (g[b, t, h][:, None] * state[b, h])
                state[b, h] += beta[b, t, h] * key @ v[b, t, h][None]
                out[b, t, h] = state[b, h].T @ q[b, t, h]
    return out, state


def test_a_decay_per_channel_compiled_and_plain_have_equal_bits() -> None:
    fast, plain = (delta_rule(**inputs(), state=None, plain=plain) for plain in (False, True))
    assert all(mx.array_equal(a, b) for a, b in zip(fast, plain, strict=True))


def test_a_decay_per_channel_is_the_textbook_rule() -> None:
    y, state = delta_rule(**inputs(), state=None)
    expected, memory = textbook(inputs())
    # 9 steps of sums over 8 values near 1 in float32, epsilon 6e-8
    assert np.abs(np.array(y) - expected).max() < 1e-6
    assert np.abs(np.array(state).swapaxes(-1, -2) - memory).max() < 1e-6


@pytest.mark.parametrize("cut", [1, 4])
def test_calls_may_begin_anywhere(cut: int) -> None:
    given = inputs()
    whole, end = delta_rule(**given, state=None)
    first, state = delta_rule(**{name: a[:, :cut] for name, a in given.items()}, state=None)
    second, state = delta_rule(**{name: a[:, cut:] for name, a in given.items()}, state=state)
    assert mx.array_equal(mx.concatenate([first, second], axis=1), whole)
    assert mx.array_equal(state, end)


def test_no_bounded_decay_is_below_its_bound() -> None:
    decays = bounded_decay(mx.array([[0.0]]), mx.linspace(-50, 50, 101)[None], mx.array([[0.0]]), -5.0)
    assert decays.min().item() == pytest.approx(np.exp(-5.0))
    assert decays.max().item() == 1.0


def test_block_means_are_softmax_weighted() -> None:
    """One kept sum and the present one: two scores, rms(x) . (norm * proj)."""
    keys = mx.random.split(mx.random.key(2), 4)
    norm, proj = 1 + mx.random.normal((E,), key=keys[0]), mx.random.normal((1, E), key=keys[1])
    kept, x = (mx.random.normal((B, L, E), key=key) for key in keys[2:])
    arch = ArchSpec(family="", vocab=1, dim=E, layers=(), norm=None, head=HeadSpec(tied=True))
    mean = BlockMean(
        BlockMeanSpec(key="m", eps=1e-5), arch, Weights({"m_norm.weight": norm, "m_proj.weight": proj}, {}, ""), ""
    )
    ctx = Forward(mx.zeros((B, L), mx.int32), [])
    assert mean(x, ctx) is x
    keep_sum(kept, 1e-5, ctx)
    streams = mx.stack([kept, x])
    scores = (mx.fast.rms_norm(streams, norm, 1e-5) * proj[0]).sum(axis=-1, keepdims=True)
    expected = (mx.softmax(scores, axis=0) * streams).sum(axis=0)
    assert mx.abs(mean(x, ctx) - expected).max().item() < 1e-6


def test_layers_by_kind() -> None:
    def kinds(recipe: str, **changes: Any) -> list[str]:
        spec = build_spec({**find_recipe(recipe).config, **changes})
        return [type(layer.attention).__name__[0] for layer in spec.layers]

    assert kinds("kimi_linear") == ["K", "K", "L", "K"]
    assert kinds("bailing_moe_v3", num_hidden_layers=5) == ["K", "L", "K", "L", "L"]
    assert kinds("bailing_moe_v3-hybrid") == ["K", "K", "L", "L"]
    # mlx-lm runs no such model (register: "kimi-linear-of-one-kind")
    linear = find_recipe("kimi_linear").config["linear_attn_config"]
    for layers, kind in (([1, 2, 3, 4], "K"), ([], "L")):
        assert kinds("kimi_linear", linear_attn_config={**linear, "kda_layers": layers}) == [kind] * 4


def test_bailing_moe_v3_weighs_and_ranks_as_asked() -> None:
    """mlx-lm reads neither word (register: "delta-hybrid-words-unread")."""
    config = {**find_recipe("bailing_moe_v3").config, "norm_topk_prob": False, "moe_router_enable_expert_bias": False}
    router = build_spec(config).layers[1].mlp.router
    assert (router.normalise, router.correction) == (None, None)
