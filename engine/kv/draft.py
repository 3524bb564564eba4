"""Tokens that may be taken back: what speculation needs of every kind of cache, all of them or none.

draft = Draft.begin(caches)
... the decoder runs k draft tokens over `caches` ...
draft.commit(j, run)        # or draft.rollback()
"""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import InvalidValue
from engine.kv.base import LayerCache, Saved


class Draft:
    """The caches of a row as they were before draft tokens, until it is known how many of those stay."""

    def __init__(self, caches: list[LayerCache], before: list[tuple[LayerCache, Saved]]) -> None:
        self._caches, self._before, self._open = caches, before, True

    @classmethod
    def begin(cls, caches: list[LayerCache]) -> Draft:
        """Note what every cache holds. `caches` is the list that the decoder runs over; a conversion in it is undone
        with the rest."""
        return cls(caches, [(cache, cache.snapshot()) for cache in caches])

    def rollback(self) -> None:
        """All caches are as they were at `begin`."""
        self._close()
        self._restore()

    def commit(self, tokens: int, run: Callable[[int], object]) -> None:
        """Keep the first `tokens` of the tokens that ran since `begin`.

        All of them: nothing is to do. Fewer: every cache goes back, and `run(tokens)` runs that many again in one
        call, which gives the bits of a run that never had the others. If it raises, all caches are as at `begin`.
        More than ran is `InvalidValue`, and the draft stays open.
        """
        ran = self._ran()
        if not 0 <= tokens <= ran:
            raise InvalidValue("commit", tokens, f"0..{ran}, the tokens that ran since begin")
        self._close()
        if tokens == ran:
            return
        self._restore()
        if not tokens:
            return
        try:
            run(tokens)
        except BaseException:
            self._restore()
            raise

    def _ran(self) -> int:
        now = max((cache.offset for cache in self._caches), default=0)
        return now - max((saved.marks[0] for _, saved in self._before), default=0)

    def _close(self) -> None:
        if not self._open:
            raise InvalidValue("draft", "closed", "one that was neither committed nor rolled back")
        self._open = False

    def _restore(self) -> None:
        for i, (cache, saved) in enumerate(self._before):
            cache.restore(saved)
            self._caches[i] = cache
