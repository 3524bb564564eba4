"""Gradients of every mixer against differences of the loss, in float32.

Along a direction u of unit length the central difference D(h) = (f(p + hu) - f(p - hu)) / 2h has two errors. What
rounding does to f, at most `ULPS` units in its last place, enters as that over h. What the third derivative leaves is
a third of D(2h) - D(h), to leading order; the larger of that difference and the one after it is taken, so that a
crossing of two slopes is not read as agreement. Their sum bounds the difference. Of the steps `STEPS` the one with the
smallest bound is taken; where even that is more than a tenth of the derivative it would show nothing, and the test
fails too.
"""

from __future__ import annotations

import itertools

import mlx.core as mx
import pytest
from training_models import MIXERS, drawn_rows

from engine.train.loss import next_token
from engine.train.parameters import Parameters, draw_parameters
from engine.train.run import spec_of

ULPS = 32
EPS = 2.0**-24
STEPS = tuple(2.0**-n for n in range(3, 13))
SHARP = 0.1


def along(parameters: Parameters, name: str, direction: mx.array, h: float) -> Parameters:
    return {**parameters, name: parameters[name] + h * direction}


def wider(parameters: Parameters) -> Parameters:
    """The same with every value moved, so that no norm is at one and no bias at zero, and with steps of a state space
    that are large enough for its decays to matter."""
    return {
        name: value
        + (3.0 if name.endswith("dt_bias") else 0.0)
        + 0.1 * mx.random.normal(value.shape, key=mx.random.key(i))
        for i, (name, value) in enumerate(parameters.items())
    }


@pytest.mark.matrix
@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_are_the_slopes_of_the_loss(mixer: str) -> None:
    """Of each parameter, along its gradient and along a random direction. A mask left out of the backward pass, an
    expert's id taken for a smooth function or a block that forgets the state before it would show."""
    spec = spec_of(MIXERS[mixer])
    parameters, rows = wider(draw_parameters(spec, 1)), drawn_rows(1, 14)
    weights = mx.ones((1, 13))
    objective = next_token(spec)
    gradients = mx.grad(objective)(parameters, rows, weights)
    size_of_loss = abs(objective(parameters, rows, weights).item())
    wrong = []
    for i, (name, gradient) in enumerate(gradients.items()):
        size = mx.linalg.norm(gradient.flatten()).item()
        drawn = mx.random.normal(gradient.shape, key=mx.random.key(100 + i))
        for kind, direction in (("own", gradient / size), ("drawn", drawn / mx.linalg.norm(drawn.flatten()))):
            places = [along(parameters, name, direction, sign * h) for h in (2 * STEPS[0], *STEPS) for sign in (1, -1)]
            values = [value.item() for value in (objective(place, rows, weights) for place in places)]
            slopes = [(values[2 * n] - values[2 * n + 1]) / (2 * h) for n, h in enumerate((2 * STEPS[0], *STEPS))]
            gaps = [abs(far - close) for far, close in itertools.pairwise(slopes)]
            bounds = [ULPS * EPS * size_of_loss / h + max(gaps[n : n + 2]) for n, h in enumerate(STEPS)]
            bound, near = min(zip(bounds, slopes[1:], strict=True))
            slope = (gradient * direction).sum().item()
            if abs(near - slope) > bound or (kind == "own" and bound > SHARP * size):
                wrong.append((name, kind, slope, near, bound))
    assert wrong == []
