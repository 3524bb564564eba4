"""Short convolutions, RG-LRU, RWKV-7 and lightning attention: plain against fast, and what parity cannot show."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import InvalidValue
from engine.graph.blurred import mixed
from engine.graph.decoder import Decoder
from engine.graph.families import build_spec
from engine.graph.lightning import BLOCK, by_block, by_token, slopes
from engine.graph.params import Weights
from engine.graph.rg_lru import recur
from engine.graph.wkv7 import wkv7
from engine.kv.plan import KVPlan
from engine.kv.request import parse_kv
from oracles.recipe import find_recipe

B, H, L, E = 2, 3, 9, 32


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    return {**find_recipe(name).config, **changes}


def drawn(count: int, *shape: int) -> list[mx.array]:
    return [mx.random.normal(shape, key=key) for key in mx.random.split(mx.random.key(5), count)]


def test_the_gated_recurrence_is_its_definition_wherever_calls_begin() -> None:
    x, decay = drawn(2, B, L, E)
    decay = mx.sigmoid(decay)
    y, last = recur(x, decay, None)
    memory, expected = np.zeros((B, E), np.float32), []
    for t in range(L):
        memory = np.array(decay[:, t]) * memory + np.array(x[:, t])
        expected.append(memory)
    assert np.array_equal(np.array(y), np.stack(expected, axis=1))
    one, after = recur(x[:, :1], decay[:, :1], None)
    rest, end = recur(x[:, 1:], decay[:, 1:], after)
    assert mx.array_equal(mx.concatenate([one, rest], axis=1), y)
    assert mx.array_equal(end, last)


def wkv7_inputs() -> tuple[mx.array, ...]:
    """r, w, k, v, a, b as a layer makes them: decays in (exp(-0.61), 1), a and b along one unit vector."""
    r, w, k, v, held = drawn(5, B, L, H, E)
    w, rate = mx.exp(-0.606531 * mx.sigmoid(w)), mx.sigmoid(v)
    held = held / mx.linalg.norm(held, axis=-1, keepdims=True)
    return r, w, k, v, -held, held * rate


def test_rwkv7_compiled_is_rwkv7_plain_wherever_calls_begin() -> None:
    inputs = wkv7_inputs()
    y, memory = wkv7(inputs, None)
    for got, plain in zip((y, memory), wkv7(inputs, None, plain=True), strict=True):
        assert mx.array_equal(got, plain)
    head, between = wkv7(tuple(x[:, :4] for x in inputs), None)
    tail, last = wkv7(tuple(x[:, 4:] for x in inputs), between)
    assert mx.array_equal(mx.concatenate([head, tail], axis=1), y)
    assert mx.array_equal(last, memory)


def test_rwkv7_is_the_recurrence_of_the_textbook() -> None:
    """S <- S (diag(w) + a b^T) + v k^T, y = S r, in float64; values near 10 after 9 steps, so 1e-4 is rounding."""
    inputs = wkv7_inputs()
    r, w, k, v, a, b = (np.array(x, np.float64) for x in inputs)
    expected = np.zeros(r.shape)
    for row, head in np.ndindex(B, H):
        memory = np.zeros((E, E))
        for t in range(L):
            at = (row, t, head)
            memory = memory @ (np.diag(w[at]) + np.outer(a[at], b[at])) + np.outer(v[at], k[at])
            expected[at] = memory @ r[at]
    # float32 against float64: 6e-6 was seen on values of 37.
    np.testing.assert_allclose(np.array(wkv7(inputs, None)[0]), expected, atol=1e-4)


def lightning_inputs(length: int) -> tuple[list[mx.array], mx.array, mx.array]:
    """q, k, v [B, H, length, E] and what the memory was, with the slopes of heads."""
    qkv = [x / E**0.5 for x in drawn(3, B, H, length, E)]
    return qkv, -slopes(H), mx.random.normal((B, H, E, E), key=mx.random.key(6))


@pytest.mark.parametrize("length", [2, BLOCK, 2 * BLOCK + 45])
def test_lightning_in_blocks_is_lightning_by_token(length: int) -> None:
    (q, k, v), slope, memory = lightning_inputs(length)
    plain = by_token(q * 0.5, k, v, slope, memory)
    for got, expected in zip(by_block(q, k, v, slope, memory, 0.5), plain, strict=True):
        # Powers of the decay up to exp(64 / 16) are multiplied and divided out: float32's 6e-8 times a hundred.
        assert mx.abs(got - expected).max().item() < 1e-5
    for got, expected in zip(by_token(q * 0.5, k, v, slope, memory, plain=False), plain, strict=True):
        assert mx.abs(got - expected).max().item() < 1e-6


@pytest.mark.parametrize(("at", "equal"), [(BLOCK, True), (100, False)])
def test_calls_may_begin_at_multiples_of_a_block(at: int, equal: bool) -> None:
    qkv, slope, memory = lightning_inputs(2 * BLOCK)
    whole, end = by_block(*qkv, slope, memory, 0.5)
    head, between = by_block(*(x[:, :, :at] for x in qkv), slope, memory, 0.5)
    tail, last = by_block(*(x[:, :, at:] for x in qkv), slope, between, 0.5)
    same = mx.array_equal(mx.concatenate([head, tail], axis=2), whole) and mx.array_equal(end, last)
    assert bool(same) is equal


def test_slopes_of_heads_that_are_no_power_of_two() -> None:
    assert np.allclose(slopes(3), [2**-4, 2**-8, 2**-2])


def test_keys_are_mixed_with_those_of_the_call_before() -> None:
    (x,) = drawn(1, B, H, L, E)
    filters = mx.random.normal((H, 2))
    whole = mixed(x, None, filters)
    parts = [mixed(x[:, :, :1], None, filters), mixed(x[:, :, 1:], x[:, :, :1], filters)]
    assert mx.array_equal(mx.concatenate(parts, axis=2), whole)


class Drawn(Weights):
    """Every parameter that is asked for, drawn."""

    def _array(self, key: str, shape: tuple[int, ...]) -> mx.array:
        return mx.random.normal(shape) * 0.1


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lfm2", {"full_attn_idxs": []}),
        ("lfm2", {"full_attn_idxs": [0, 1, 2]}),
        ("recurrent_gemma", {"block_types": ["recurrent"]}),
        ("recurrent_gemma", {"conv1d_width": 2, "attention_bias": True, "lru_width": 128, "num_hidden_layers": 2}),
        ("bailing_moe_linear-dense", {"layer_group_size": 6, "num_hidden_layers": 2}),
        ("bailing_hybrid-dense", {"layer_group_size": 1}),
        ("baichuan_m1", {"tie_word_embeddings": True}),
    ],
)
def test_what_mlx_lm_does_not_run(name: str, changes: dict[str, Any]) -> None:
    spec = build_spec(config_of(name, **changes))
    decoder = Decoder(spec, Drawn({}, {}, ""))
    ids, caches = mx.array([[3, 1, 4, 1, 5]]), KVPlan.build(parse_kv("native"), spec.caches).fresh()
    whole = decoder.forward_hidden(ids, KVPlan.build(parse_kv("native"), spec.caches).fresh())
    parts = [decoder.forward_hidden(ids[:, part], caches) for part in (slice(0, 2), slice(2, 5))]
    # Latent attention and blocks of tokens round by the call.
    assert mx.allclose(mx.concatenate(parts, axis=1), whole, atol=1e-4)
    assert decoder.project(whole).shape == (1, 5, 100)


def test_keys_of_a_mixed_layer_can_be_quantised() -> None:
    spec = build_spec(config_of("baichuan_m1-full"))
    decoder, plan = Decoder(spec, Drawn({}, {}, "")), KVPlan.build(parse_kv("kv8:g32"), spec.caches)
    caches, ids = plan.fresh(), mx.array([[3, 1, 4, 1, 5]])
    plan.convert(caches)
    native = KVPlan.build(parse_kv("native"), spec.caches).fresh()
    near = mx.abs(decoder.forward_hidden(ids, caches) - decoder.forward_hidden(ids, native)).max().item()
    assert plan.status(caches) == "affine8:g32"
    assert 0 < near < 0.1


def test_an_original_lfm2_vl_is_read() -> None:
    original = {
        "model.language_model.layers.0.conv.conv.weight": mx.zeros((64, 1, 3)),
        "model.language_model.embed_tokens.weight": mx.zeros((100, 64)),
        "lm_head.weight": mx.zeros((100, 64)),
        "model.vision_tower.patch.weight": mx.zeros((4,)),
        "model.multi_modal_projector.linear_1.weight": mx.zeros((4,)),
    }
    for rule in build_spec(config_of("lfm2-vl")).rules:
        original = rule(original)
    assert {key: tuple(value.shape) for key, value in original.items()} == {
        "language_model.model.layers.0.conv.conv.weight": (64, 3, 1),
        "language_model.model.embed_tokens.weight": (100, 64),
    }


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("lfm2", "full_attn_idxs", [4]),
        ("lfm2-plain", "layer_types", ["conv", "full_attention", "rnn"]),
        ("lfm2", "conv_L_cache", 1),
        ("lfm2", "block_dim", 32),
        ("recurrent_gemma", "block_types", ["recurrent", "rnn"]),
        ("recurrent_gemma", "block_types", []),
        ("recurrent_gemma", "lru_width", 63),
        ("baichuan_m1", "conv_window", 3),
        ("baichuan_m1", "num_attention_heads", 3),
        ("rwkv7", "head_dim", 48),
        ("bailing_moe_linear", "group_norm_size", 3),
        ("bailing_moe_linear", "score_function", "tanh"),
        ("bailing_moe_linear-grouped", "norm_head", True),
        ("bailing_hybrid", "partial_rotary_factor", 1.5),
        ("bailing_hybrid", "group_norm_size", 5),
    ],
)
def test_what_cannot_be_built_is_named(name: str, field: str, value: object) -> None:
    with pytest.raises(InvalidValue, match=field):
        build_spec(config_of(name, **{field: value}))
