"""Kimi delta attention and residuals over blocks of layers: bounds, means, and which layers are of which kind."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.graph.block_residuals import BlockMean, BlockMeanSpec, keep_sum
from engine.graph.delta_net import bounded_decay
from engine.graph.families import build_spec
from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec, HeadSpec
from oracles.recipe import find_recipe

B, L, E = 2, 9, 8


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
