"""The loss: natural logarithms of the probability of each target, masked and summed by token.

Letters: B rows, T targets of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.graph.spec import ArchSpec
from engine.train.parameters import Parameters, decoder_of, hidden_states

# (parameters, rows [B, T + 1], weights [B, T]) -> the weighted sum of the losses of all targets, in nats
Objective = Callable[[Parameters, mx.array, mx.array], mx.array]


def target_losses(logits: mx.array, targets: mx.array) -> mx.array:
    """Logits [..., V] and target ids [...] -> -ln p(target) [...], float32."""
    logits = logits.astype(mx.float32)
    picked = mx.take_along_axis(logits, targets[..., None], axis=-1).squeeze(-1)
    return mx.logsumexp(logits, axis=-1) - picked


def row_losses(spec: ArchSpec, parameters: Parameters, rows: mx.array) -> mx.array:
    """Rows [B, T + 1] of token ids -> the loss [B, T] of every token behind the first, in nats."""
    decoder = decoder_of(spec, parameters)
    hidden = hidden_states(decoder, rows[:, :-1])
    return target_losses(decoder.project(hidden), rows[:, 1:])


def next_token(spec: ArchSpec) -> Objective:
    """The objective of a language model; a weight of 0 masks a target."""

    def objective(parameters: Parameters, rows: mx.array, weights: mx.array) -> mx.array:
        return (row_losses(spec, parameters, rows) * weights).sum()

    return objective
