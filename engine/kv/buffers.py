"""Growing buffers of parts: arrays [B, K, C, ...] whose first tokens are in use and whose tail is slack.

C is the allocated capacity, a multiple of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.errors import InvalidValue
from engine.kv.storage import Parts

# mlx-lm grows its caches by this many tokens; peak memory is compared with it (models/cache.py).
STEP = 256
SHORTEST = 32


def grown(buffer: Parts | None, new: Parts, used: int) -> Parts:
    """`buffer` with room for `new` after `used` tokens."""
    before = 0 if buffer is None else capacity(buffer)
    after = grown_capacity(before, used, new[0].shape[2])
    if buffer is None:
        return room(new, after)
    return buffer if after == before else joined((part(buffer, 0, used), room(new, after - used)))


def roomy(buffer: Parts, used: int, after: int) -> Parts:
    """`buffer` with room for more tokens after `used`: as it is where there is some, else for `after` in all."""
    return buffer if used < capacity(buffer) else widened(buffer, used, after)


def widened(buffer: Parts, used: int, after: int) -> Parts:
    """The first `used` tokens with room for `after` in all."""
    return joined((part(buffer, 0, used), room(buffer, after - used)))


def stride(tokens: int) -> int:
    """The steps in which room for so many tokens is made where every write copies it all: an eighth of them or so."""
    return max(SHORTEST, (1 << tokens.bit_length()) // 8)


def near(tokens: int) -> int:
    """The least capacity of whole strides that has room for so many."""
    return -(-tokens // stride(tokens)) * stride(tokens)


def whole_steps(tokens: int) -> int:
    """The least capacity of whole steps that has room for so many."""
    return -(-tokens // STEP) * STEP


def grown_capacity(before: int, used: int, length: int) -> int:
    """The capacity of a buffer, once `length` tokens were put behind `used`: as before, or whole steps more."""
    return before if used + length <= before else used + (STEP + length - 1) // STEP * STEP


def room(like: Parts, tokens: int) -> Parts:
    """Zeros for `tokens` tokens."""
    return tuple(mx.zeros((*x.shape[:2], tokens, *x.shape[3:]), x.dtype) for x in like)


def write(buffer: Parts, new: Parts, start: int) -> None:
    """Put `new` at `start`, in place."""
    for old, fresh in zip(buffer, new, strict=True):
        old[:, :, start : start + fresh.shape[2]] = fresh


def part(buffer: Parts, start: int, end: int | None = None) -> Parts:
    """The tokens from `start` to `end`."""
    return tuple(x[:, :, start:end] for x in buffer)


def joined(buffers: Sequence[Parts]) -> Parts:
    """Buffers behind each other."""
    return tuple(mx.concatenate(list(column), axis=2) for column in zip(*buffers, strict=True))


def capacity(buffer: Parts) -> int:
    return buffer[0].shape[2]


def check_room(buffers: Sequence[Parts | None], tokens: int) -> None:
    """`InvalidValue` if a buffer has no room for the tokens that the counters say are in it."""
    for buffer in buffers:
        if tokens < 0 or (tokens and buffer is None):
            raise InvalidValue("cache offset", tokens, "0 in an empty cache")
        for array in buffer or ():
            if array.shape[2] < tokens:
                raise InvalidValue("cache offset", tokens, f"at most {array.shape[2]}, what its arrays have room for")


def trimmed(offset: int, tokens: int) -> int:
    """The offset without the last `tokens`; more than there are is `InvalidValue`."""
    if not 0 <= tokens <= offset:
        raise InvalidValue("trim", tokens, f"0..{offset} tokens")
    return offset - tokens
