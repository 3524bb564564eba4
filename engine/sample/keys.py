"""An explicit chain of random keys, one per request.

`mx.random.seed(s)` sets the state to `key(s)`; every draw splits the state, keeps the first half as the new state and
spends the second. A chain does the same by hand, so that a request draws what mlx-lm draws after `mx.random.seed`,
whatever else the process samples, and never touches the thread's own state.
"""

from __future__ import annotations

import mlx.core as mx

from engine.errors import InvalidValue


class KeyChain:
    """The keys of one request, in the order in which its draws spend them.

    seed: an integer in [0, 2**64), as `mx.random.seed` takes. Not thread-safe: a request belongs to one thread.
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise InvalidValue("seed", seed, "an integer in [0, 2**64)")
        self.seed = seed
        self.drawn = 0
        self._state = mx.random.key(seed)

    def next(self) -> mx.array:
        """The key of the next draw, uint32 [2]; advances the chain."""
        halves = mx.random.split(self._state)
        self._state = halves[0]
        self.drawn += 1
        return halves[1]
