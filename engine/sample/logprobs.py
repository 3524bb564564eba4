"""Log-probabilities of next-token logits. B rows, V vocabulary."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from engine.errors import InvalidValue


def logprobs_of(logits: mx.array) -> mx.array:
    """Logits [B, V] -> log-probabilities [B, V] in nats, in the logits' own dtype (mlx-lm's generate_step).

    The argmax of a greedy step is taken of this result, since in 16 bits rounding can tie logits that differ.
    """
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def top(row: np.ndarray, k: int) -> tuple[tuple[int, float], ...]:
    """The k best (token id, logprob in nats) of a row [V] of float32 logprobs, best first; equal values in order of
    token id.

    Raises `InvalidValue` for a k that the vocabulary cannot give.
    """
    vocab_size = row.shape[-1]
    if row.ndim != 1:
        raise InvalidValue("logprobs shape", row.shape, "one row [V]")
    if not 0 <= k <= vocab_size:
        raise InvalidValue("top_logprobs", k, f"an integer in 0..{vocab_size} (the model's vocabulary)")
    if k == 0:
        return ()
    threshold = np.partition(row, vocab_size - k)[vocab_size - k]
    candidates = np.flatnonzero(row >= threshold)  # ascending ids, so a stable sort keeps ties in id order
    best = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    return tuple((int(token), float(row[token])) for token in best)
