"""The training forms of recurrences, experts and convolutions against the forms that serve."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from training_models import MIXERS, drawn_rows

from engine.graph.decoder import Decoder
from engine.graph.delta_blocks import delta_blocks, unit_lower_inverse
from engine.graph.delta_net import delta_rule
from engine.graph.params import Weights
from engine.graph.ssm import scan_plain
from engine.graph.ssm_blocks import scan_blocks
from engine.train.loss import next_token
from engine.train.parameters import decoder_of, draw_parameters, hidden_states
from engine.train.run import spec_of

# Sums of a few dozen terms of size one, in another order; float32 keeps 24 bits.
ROUNDING = 2e-5


@pytest.mark.parametrize("mixer", MIXERS)
def test_training_form_is_the_served_function(mixer: str) -> None:
    """A block that is cut wrongly, a filter read backwards or a token sent through another expert would show."""
    spec = spec_of(MIXERS[mixer])
    parameters, ids = draw_parameters(spec, 1), drawn_rows(2, 70)
    served = hidden_states(Decoder(spec, Weights(parameters, {}, "served")), ids)
    trained = hidden_states(decoder_of(spec, parameters), ids)
    assert mx.abs(served - trained).max().item() <= ROUNDING * mx.abs(served).max().item()


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
def test_delta_rule_in_blocks(length: int) -> None:
    """From a state, with more value heads than key heads, at lengths around the block."""
    keys = mx.random.split(mx.random.key(length), 6)
    q, k = (mx.random.normal((2, length, 2, 8), key=key) for key in keys[:2])
    q, k = (x / mx.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    v = mx.random.normal((2, length, 4, 6), key=keys[2])
    g, beta = (mx.random.uniform(0.5, 1.0, (2, length, 4), key=key) for key in keys[3:5])
    state = mx.random.normal((2, 4, 6, 8), key=keys[5])
    for made, wanted in zip(delta_blocks(q, k, v, g, beta, state), delta_rule(q, k, v, g, beta, state), strict=True):
        assert made.shape == wanted.shape
        assert mx.abs(made - wanted).max().item() <= ROUNDING * mx.abs(wanted).max().item()


def test_inverse_where_a_series_of_powers_would_lose_everything() -> None:
    """All ones below the diagonal: the powers of it reach 1e17, the inverse has ones and minus ones."""
    inverse = unit_lower_inverse(mx.tril(mx.ones((64, 64))))
    assert mx.array_equal(inverse, mx.eye(64) - mx.eye(64, k=-1))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
def test_state_space_in_blocks(length: int) -> None:
    """From a state, two groups of heads: a state that enters a block too late or fades twice would show."""
    keys = mx.random.split(mx.random.key(length), 6)
    x = mx.random.normal((2, length, 4, 6), key=keys[0])
    dt = mx.random.uniform(0.01, 0.5, (2, length, 4), key=keys[1])
    rates = -mx.random.uniform(0.1, 4.0, (4,), key=keys[2])
    b, c = (mx.random.normal((2, length, 2, 8), key=key) for key in keys[3:5])
    state = mx.random.normal((2, 4, 6, 8), key=keys[5])
    for made, wanted in zip(scan_blocks(x, dt, rates, b, c, state), scan_plain(x, dt, rates, b, c, state), strict=True):
        assert wanted is not None
        assert made.shape == wanted.shape
        assert mx.abs(made - wanted).max().item() <= ROUNDING * mx.abs(wanted).max().item()


@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_have_few_axes(mixer: str) -> None:
    """Copies on CUDA take ten axes at most; an inverse that stacks its halves has eleven at 64 tokens of a block."""
    spec = spec_of(MIXERS[mixer])
    parameters, weights = draw_parameters(spec, 1), mx.ones((2, 70))
    axes: list[int] = []

    def gradients(rows: mx.array) -> list[mx.array]:
        return list(mx.grad(next_token(spec))(parameters, rows, weights).values())

    def look(part: dict[str, Any]) -> None:
        axes.extend(len(shape) for _, shape, _ in part.get("outputs", ()))

    mx.export_function(look, gradients, drawn_rows(2, 71))
    assert len(axes) > 100
    assert max(axes) <= 8
