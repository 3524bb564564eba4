"""Boolean attention masks, made once a forward and shared by its layers.

Letters: L queries of this forward, S keys in a view.
"""

from __future__ import annotations

import mlx.core as mx


def causal_mask(length: int, offset: int, window: int | None = None) -> mx.array:
    """Boolean [L, S]: query i may see keys up to position offset + i, at most the last `window` of them."""
    keys = mx.arange(offset + length)
    queries = mx.arange(offset, offset + length) if offset else keys
    mask = queries[:, None] >= keys[None]  # [L, S]
    return mask if window is None else mask & (queries[:, None] < keys[None] + window)


def chunk_mask(start: int, offset: int, length: int, chunk: int) -> mx.array:
    """Boolean [L, S] over keys from position `start`: the same chunk, and not the future."""
    end = offset + length
    keys, queries = mx.arange(start, end), mx.arange(offset, end)[:, None]
    return (mx.abs((keys // chunk) - (queries // chunk)) == 0) & (keys <= queries)


class Masks:
    """The masks of one forward by what they depend on."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], mx.array] = {}

    def causal(self, length: int, offset: int, window: int | None = None) -> mx.array:
        key = (length, offset, window or 0)
        if key not in self._made:
            self._made[key] = causal_mask(length, offset, window)
        return self._made[key]

    def padded(self, pads: tuple[int, ...], length: int, offset: int, window: int | None = None) -> mx.array:
        """Boolean [B, 1, L, S]: as `causal`, and of row b no key before pads[b]."""
        key = (-1, length, offset, window or 0, *pads)
        if key not in self._made:
            seen = mx.arange(offset + length)[None] >= mx.array(pads)[:, None]  # [B, S]
            seen = seen[:, None, None]
            alone = length == 1 and window is None  # the newest token sees every key of its row
            self._made[key] = seen if alone else seen & self.causal(length, offset, window)
        return self._made[key]

    def ring(self, pads: tuple[int, ...], length: int, before: int, window: int, turn: int | None) -> mx.array:
        """Boolean [B, 1, L, S]: as `padded` with `before` keys before this forward's, which lie `turn` places on where
        that is given."""
        key = (-2, length, before, window, -1 if turn is None else turn, *pads)
        if key not in self._made:
            seen = mx.arange(before + length)[None] >= mx.array(pads)[:, None]  # [B, S]
            mask = seen[:, None, None] & self.causal(length, before, window)
            self._made[key] = mask if turn is None else mx.roll(mask, turn, -1)
        return self._made[key]

    def inside(self, pads: tuple[int, ...], ends: tuple[int, ...], length: int) -> mx.array:
        """Boolean [B, L]: token i of row b is neither before pads[b] nor at ends[b] or behind; () for no bound."""
        key = (-3, length, len(pads), *pads, *ends)
        if key not in self._made:
            place, mask = mx.arange(length), mx.array(True)
            if pads:
                mask = place >= mx.array(pads)[:, None]
            if ends:
                mask = mask & (place < mx.array(ends)[:, None])
            self._made[key] = mask
        return self._made[key]

    def chunked(self, start: int, offset: int, length: int, chunk: int) -> mx.array:
        key = (start, offset, length, chunk)
        if key not in self._made:
            self._made[key] = chunk_mask(start, offset, length, chunk)
        return self._made[key]
