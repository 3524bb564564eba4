"""Logits processors: bias and penalties. V: vocabulary, n: tokens looked back at.

Order and arithmetic are mlx-lm's (sample_utils.make_logits_processors): logit_bias, repetition, presence, frequency.
None of them changes the array it is given, so a caller may keep the raw logits.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.errors import InvalidValue
from engine.types import SamplingParams

Processor = Callable[[mx.array, mx.array], mx.array]


def logit_bias(bias: dict[int, float]) -> Processor:
    """Add `bias[token]` to that token's logit; the values are cast to the logits' dtype before the addition."""
    ids = mx.array(list(bias.keys()))
    values = mx.array(list(bias.values()))

    def apply(_: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, ids].add(values)

    return apply


def repetition_penalty(penalty: float, context_size: int) -> Processor:
    """Multiply negative and divide other logits of recent tokens by `penalty`, once a token."""

    def apply(history: mx.array, logits: mx.array) -> mx.array:
        ids = history[-context_size:][None]  # [1, n]
        seen = mx.take_along_axis(logits, ids, axis=-1)
        return mx.put_along_axis(logits, ids, mx.where(seen < 0, seen * penalty, seen / penalty), axis=-1)

    return apply


def presence_penalty(penalty: float, context_size: int) -> Processor:
    """Subtract `penalty` from the logits of recent tokens, once a token."""

    def apply(history: mx.array, logits: mx.array) -> mx.array:
        ids = history[-context_size:][None]  # [1, n]
        return mx.put_along_axis(logits, ids, mx.take_along_axis(logits, ids, axis=-1) - penalty, axis=-1)

    return apply


def frequency_penalty(penalty: float, context_size: int) -> Processor:
    """Subtract `penalty` from the logits of recent tokens, once an occurrence (rounded after each)."""

    def apply(history: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, history[-context_size:]].subtract(penalty)

    return apply


class Processors:
    """The processors of one request, in order. False when there is nothing to do."""

    def __init__(self, steps: tuple[tuple[str, Processor], ...]) -> None:
        self.names = tuple(name for name, _ in steps)
        self._steps = tuple(step for _, step in steps)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __call__(self, history: mx.array, logits: mx.array) -> mx.array:
        """history: all token ids that were fed so far, prompt included, [n]; logits [1, V] -> logits [1, V]."""
        if history.size == 0:
            # Without a history the penalties do nothing; the bias still applies.
            steps = self._steps[:1] if self.names[:1] == ("logit_bias",) else ()
        else:
            steps = self._steps
        for step in steps:
            logits = step(history, logits)
        return logits


def build_processors(params: SamplingParams, vocab_size: int) -> Processors:
    """The processors that `params` ask for, over logits [1, vocab_size].

    Raises `InvalidValue` for a biased token that the vocabulary does not have; mlx-lm ignores an id past the end.
    """
    for token in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise InvalidValue("logit_bias token id", token, f"0..{vocab_size - 1} (the model's vocabulary)")
    steps: list[tuple[str, Processor]] = []
    if params.logit_bias:
        steps.append(("logit_bias", logit_bias(dict(params.logit_bias))))
    if params.repetition_penalty:
        step = repetition_penalty(params.repetition_penalty, params.repetition_context_size)
        steps.append(("repetition_penalty", step))
    if params.presence_penalty:
        steps.append(("presence_penalty", presence_penalty(params.presence_penalty, params.presence_context_size)))
    if params.frequency_penalty:
        steps.append(("frequency_penalty", frequency_penalty(params.frequency_penalty, params.frequency_context_size)))
    return Processors(tuple(steps))
