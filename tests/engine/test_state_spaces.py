"""State-space mixers: plain and fast recurrences, blocks of 256 tokens, and what families do where mlx-lm is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import pytest

from engine.errors import InvalidValue
from engine.graph import mamba, ssm
from engine.graph.families import build_spec
from engine.graph.families.common import Config
from engine.graph.families.mamba2 import limits
from engine.graph.plain import plain_recurrences
from oracles.recipe import find_recipe

B, L, H, P, G, N = 2, 300, 4, 8, 2, 16


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    return {**find_recipe(name).config, **changes}


def inputs() -> dict[str, mx.array]:
    """Of ssm.scan, with a state before them."""
    keys = mx.random.split(mx.random.key(3), 6)
    x, dt = mx.random.normal((B, L, H, P), key=keys[0]), mx.random.uniform(0.01, 0.5, (B, L, H), key=keys[1])
    b, c = (mx.random.normal((B, L, G, N), key=key) / N**0.5 for key in keys[2:4])
    rates = -mx.random.uniform(0.1, 2.0, (H,), key=keys[4])
    return {"x": x, "dt": dt, "rates": rates, "b": b, "c": c, "state": mx.random.normal((B, H, P, N), key=keys[5])}


@pytest.mark.parametrize("begun", [False, True])
def test_blocks_are_the_definition(begun: bool) -> None:
    given = {**inputs(), **({} if begun else {"state": None})}
    fast, plain = ssm.scan(**given), ssm.scan_plain(**given)
    for a, b in zip(fast, plain, strict=True):
        # Values near 1 from sums over up to 256 tokens in another order: float32's epsilon, 6e-8, times a hundred.
        assert mx.abs(a - b).max().item() < 1e-5


def _cut(given: Mapping[str, mx.array], part: slice, state: mx.array | None) -> dict[str, Any]:
    along = {k: given[k][:, part] for k in ("x", "dt", "b", "c")}
    return {**along, "rates": given["rates"], "state": state}


@pytest.mark.parametrize(("at", "equal"), [(256, True), (100, False)])
def test_calls_may_begin_at_multiples_of_a_block(at: int, equal: bool) -> None:
    given = inputs()
    whole, end = ssm.scan(**given)
    first, state = ssm.scan(**_cut(given, slice(0, at), given["state"]))
    second, last = ssm.scan(**_cut(given, slice(at, L), state))
    same = mx.array_equal(mx.concatenate([first, second], axis=1), whole) and mx.array_equal(last, end)
    assert bool(same) is equal
    assert build_spec(config_of("mamba2")).publish_every(512) == ssm.BLOCK


def test_tokens_together_are_tokens_one_by_one() -> None:
    keys = mx.random.split(mx.random.key(4), 6)
    channels = 12
    x, dt = mx.random.normal((B, 9, channels), key=keys[0]), mx.random.uniform(0.01, 0.5, (B, 9, channels), key=keys[1])
    b, c = (mx.random.normal((B, 9, N), key=key) for key in keys[2:4])
    rates = -mx.random.uniform(0.1, 2.0, (channels, N), key=keys[4])
    state = mx.random.normal((B, channels, N), key=keys[5])
    mx.disable_compile()
    try:
        for fast, plain in zip(
            mamba.scan(x, dt, rates, b, c, state), mamba.scan_plain(x, dt, rates, b, c, state), strict=True
        ):
            assert mx.array_equal(fast, plain)
    finally:
        mx.enable_compile()


@pytest.mark.parametrize("name", ["mamba2", "jamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "plamo2"])
def test_every_mixer_has_a_plain_form(name: str) -> None:
    spec = build_spec(config_of(name))
    plain = plain_recurrences(spec)
    assert plain != spec
    assert repr(plain).count("plain=True") == repr(spec).count("plain=False")


def test_infinity_as_transformers_writes_it() -> None:
    given = Config({"time_step_limit": [0.0, {"__float__": "Infinity"}]})
    assert limits(given) == (0.0, math.inf)
    for bad in ([1.0, 0.5], [0.0], [0.0, "Infinity"], [0.0, math.nan], 3.0, [True, 1.0]):
        with pytest.raises(InvalidValue, match="time_step_limit"):
            limits(Config({"time_step_limit": bad}))


def test_an_epsilon_is_every_norms() -> None:
    for name in ("mamba", "mamba2"):
        spec = build_spec(config_of(name, layer_norm_epsilon=1e-3))
        assert spec.norm is not None
        assert (spec.norm.eps, spec.layers[0].norms.pre_attn.eps) == (1e-3, 1e-3)


def test_jambas_mixtures_begin_at_the_offset() -> None:
    spec = build_spec(config_of("jamba", num_hidden_layers=8, expert_layer_period=4, expert_layer_offset=1))
    assert [i for i, layer in enumerate(spec.layers) if type(layer.mlp).__name__ == "MoeSpec"] == [1, 5]


def test_hybrids_of_one_kind_are_built() -> None:
    assert {s.kind for s in build_spec(config_of("nemotron_h-dense", layers_block_type=["mamba"] * 3)).caches} == {
        "state"
    }
    kinds = {"layers_block_type": ["mamba"] * 2}
    assert {s.kind for s in build_spec(config_of("jamba-dense", **kinds)).caches} == {"state"}
    few = build_spec(config_of("plamo2", num_hidden_layers=2, mamba_step=4))
    assert [s.kind for s in few.caches] == ["state", "dense"]


def test_falcon_h1s_factors_are_folded_into_an_original_checkpoint() -> None:
    config = config_of("falcon_h1", key_multiplier=0.5, attention_in_multiplier=4.0)
    ones = {f"model.layers.0.self_attn.{p}_proj.weight": mx.ones((2, 2)) for p in "qkvo"}
    original = {**ones, "model.layers.0.mamba.conv1d.weight": mx.ones((6, 1, 4)), "model.norm.weight": mx.ones((2,))}
    saved = {**original, "model.layers.0.mamba.conv1d.weight": mx.ones((6, 4, 1))}
    for arrays, factors in ((original, (4.0, 2.0, 4.0, 0.5)), (saved, (1.0, 1.0, 1.0, 1.0))):
        for rule in build_spec(config).rules:
            arrays = rule(arrays)
        assert tuple(arrays[key][0, 0].item() for key in ones) == factors
        assert arrays["model.layers.0.mamba.conv1d.weight"].shape == (6, 4, 1)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("mamba2", "n_groups", 3),
        ("mamba2", "hidden_act", "gelu"),
        ("falcon_h1", "mamba_d_ssm", 96),
        ("falcon_h1", "ssm_multipliers", [1.0, 1.0]),
        ("granitemoehybrid", "layer_types", ["mamba", "attention", "conv"]),
        ("granitemoehybrid", "position_embedding_type", "alibi"),
        ("jamba", "layers_block_type", ["mamba", "attention", "mamba", "moe"]),
        ("nemotron_h", "hybrid_override_pattern", "M-*X"),
        ("nemotron_h-dense", "layers_block_type", ["mamba", "rnn", "mlp"]),
        ("nemotron_h", "mlp_hidden_act", "silu"),
        ("plamo2", "mamba_step", 1),
    ],
)
def test_what_cannot_be_built_is_named(name: str, field: str, value: object) -> None:
    with pytest.raises(InvalidValue, match=field):
        build_spec(config_of(name, **{field: value}))


def test_a_plamo2_may_have_attention_only() -> None:
    spec = build_spec(config_of("plamo2", mamba_enabled=False))
    assert [s.kind for s in spec.caches] == ["dense"] * len(spec.layers)
