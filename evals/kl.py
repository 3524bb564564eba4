"""KL divergence between two sets of logits, position by position. Pure numpy in float64.

Letters: N positions, V vocabulary. Both arms' logits are what the model returned, in fp32 (16-bit logits widen to it
without loss); everything after that is float64. `reference` is p, `candidate` is q: KL(ref || cand) in nats.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from engine import errors

# KL is not negative. Rounding in float64 stays far above this; anything below is a wrong formula or wrong data.
NEGATIVE_LIMIT = -1e-12
# Rows that are worked on at once: bounds the float64 copies to some tens of MB at a vocabulary of 50 k.
BLOCK_ROWS = 16
TOP_K = (5, 20)


class NegativeKL(errors.FrontierError):
    """A divergence below zero by more than rounding: a bug, never a measurement."""

    exit_code = 3


class BadLogits(errors.FrontierError):
    """Logits that cannot be compared: not finite, or of another shape than the other arm's."""

    exit_code = 3


@dataclass(frozen=True, eq=False)
class PositionScores:
    """What two arms say at the same N positions; every field is an array [N].

    kl, reverse_kl: KL(ref || cand) and KL(cand || ref). reference_nll, candidate_nll: of the text's own next token.
    same_top1: the same most likely token. overlap5, overlap20: shared part of the 5 and 20 most likely tokens.
    gap: the reference's lead of its first token over its second. All but the shares in nats.
    """

    kl: np.ndarray
    reverse_kl: np.ndarray
    reference_nll: np.ndarray
    candidate_nll: np.ndarray
    same_top1: np.ndarray
    overlap5: np.ndarray
    overlap20: np.ndarray
    gap: np.ndarray

    def __len__(self) -> int:
        return len(self.kl)

    @classmethod
    def join(cls, parts: list[PositionScores]) -> PositionScores:
        """All positions of several blocks or sequences, in order."""
        return cls(*(np.concatenate([part.__dict__[f.name] for part in parts]) for f in fields(cls)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities [N, V] in float64."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))


def check_logits(reference: np.ndarray, candidate: np.ndarray) -> None:
    """Raise `BadLogits` unless both are finite arrays [N, V] of one shape."""
    if reference.ndim != 2 or reference.shape != candidate.shape or 0 in reference.shape:
        raise BadLogits(f"logits of shape {reference.shape} and {candidate.shape} instead of one [N, V]")
    for name, array in (("reference", reference), ("candidate", candidate)):
        if not np.isfinite(array).all():
            raise BadLogits(f"the {name}'s logits are not finite")


def _divergence(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """sum p (exp(d) - 1 - d), d = log q - log p: the same sum as p (log p - log q), each term >= 0."""
    d = log_q - log_p  # [N, V]
    p = np.exp(log_p)
    # Where d is large, p exp(d) is q: written so, a token that p gives nothing cannot overflow to 0 * inf.
    small = np.abs(d) < 1.0
    terms = np.where(small, p * (np.expm1(np.where(small, d, 0.0)) - d), np.exp(log_q) - p - p * d)
    return checked_divergence(np.asarray(terms.sum(axis=1)))


def checked_divergence(kl: np.ndarray) -> np.ndarray:
    """The divergences [N] themselves; `NegativeKL` if one is below `NEGATIVE_LIMIT` or no number."""
    wrong = kl[~(kl >= NEGATIVE_LIMIT)]
    if wrong.size:
        raise NegativeKL(f"KL of {wrong[0]:.3g} nats at {wrong.size} of {kl.size} positions; a divergence is >= 0")
    return kl


def kl_divergence(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """KL(ref || cand) per position [N] in nats, from logits [N, V].

    Exactly 0 for equal logits. Raises `BadLogits` and `NegativeKL`.
    """
    check_logits(reference, candidate)
    blocks = [
        _divergence(log_softmax(reference[i : i + BLOCK_ROWS]), log_softmax(candidate[i : i + BLOCK_ROWS]))
        for i in range(0, len(reference), BLOCK_ROWS)
    ]
    return np.concatenate(blocks)


def token_nll(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Negative log-likelihood [N] in nats of `targets` [N] under logits [N, V]."""
    blocks = [
        -np.take_along_axis(log_softmax(logits[i : i + BLOCK_ROWS]), targets[i : i + BLOCK_ROWS, None], axis=1)[:, 0]
        for i in range(0, len(logits), BLOCK_ROWS)
    ]
    return np.concatenate(blocks)


def _top(rows: np.ndarray, k: int) -> np.ndarray:
    """The ids [N, k] of the k largest of each row, in no order."""
    return np.asarray(np.argpartition(rows, -k, axis=1)[:, -k:])


def _overlap(log_p: np.ndarray, log_q: np.ndarray, k: int) -> np.ndarray:
    k = min(k, log_p.shape[1])
    ours, theirs = _top(log_p, k), _top(log_q, k)
    return np.asarray((ours[:, :, None] == theirs[:, None, :]).any(axis=2).mean(axis=1))


def _score_block(reference: np.ndarray, candidate: np.ndarray, targets: np.ndarray) -> PositionScores:
    log_p, log_q = log_softmax(reference), log_softmax(candidate)
    best = np.sort(log_p[np.arange(len(log_p))[:, None], _top(log_p, min(2, log_p.shape[1]))], axis=1)
    at = targets[:, None]
    return PositionScores(
        kl=_divergence(log_p, log_q),
        reverse_kl=_divergence(log_q, log_p),
        reference_nll=-np.take_along_axis(log_p, at, axis=1)[:, 0],
        candidate_nll=-np.take_along_axis(log_q, at, axis=1)[:, 0],
        same_top1=reference.argmax(axis=1) == candidate.argmax(axis=1),
        overlap5=_overlap(log_p, log_q, TOP_K[0]),
        overlap20=_overlap(log_p, log_q, TOP_K[1]),
        gap=best[:, -1] - best[:, 0],
    )


def score_positions(reference: np.ndarray, candidate: np.ndarray, targets: np.ndarray) -> PositionScores:
    """Compare two arms at N positions. `targets` [N]: the text's next token after each position.

    Raises `BadLogits`, `NegativeKL`, and `errors.InvalidValue` for targets that are not N ids below V.
    """
    check_logits(reference, candidate)
    if targets.shape != reference.shape[:1] or targets.min() < 0 or targets.max() >= reference.shape[1]:
        raise errors.InvalidValue(
            "targets", targets.shape, f"{len(reference)} token ids in 0..{reference.shape[1] - 1}"
        )
    blocks = [
        _score_block(reference[i : i + BLOCK_ROWS], candidate[i : i + BLOCK_ROWS], targets[i : i + BLOCK_ROWS])
        for i in range(0, len(reference), BLOCK_ROWS)
    ]
    return PositionScores.join(blocks)
