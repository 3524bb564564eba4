"""Log-probabilities of next-token logits. V: vocabulary."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from engine.errors import InvalidValue


def logprobs_of(logits: mx.array) -> mx.array:
    """Logits [1, V] -> log-probabilities [1, V] in nats, in the logits' own dtype (mlx-lm's generate_step).

    The sum runs over all axes, so this is for one row; the argmax of a greedy step is taken of this result, since in
    16 bits rounding can tie logits that differ.
    """
    return logits - mx.logsumexp(logits, keepdims=True)


def top(logprobs: mx.array, k: int) -> tuple[tuple[int, float], ...]:
    """The k best (token id, logprob in nats) of a row [V], best first; equal values in order of token id.

    Evaluates the row. Raises `InvalidValue` for a k that the vocabulary cannot give.
    """
    vocab_size = logprobs.shape[-1]
    if logprobs.ndim != 1:
        raise InvalidValue("logprobs shape", logprobs.shape, "one row [V]")
    if not 0 <= k <= vocab_size:
        raise InvalidValue("top_logprobs", k, f"an integer in 0..{vocab_size} (the model's vocabulary)")
    if k == 0:
        return ()
    row = np.array(logprobs.astype(mx.float32))
    threshold = np.partition(row, vocab_size - k)[vocab_size - k]
    candidates = np.flatnonzero(row >= threshold)  # ascending ids, so a stable sort keeps ties in id order
    best = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    return tuple((int(token), float(row[token])) for token in best)
