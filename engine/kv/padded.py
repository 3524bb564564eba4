"""Rows side by side in one buffer, as mlx-lm's batch keeps them: attention is one call for all of them, a mask hides
what lies before a shorter row, and rows are copied when one joins or leaves.

Letters: B rows, K key/value heads, L query length, S keys of the longest row, C tokens that there is room for, D head
dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import mlx.core as mx

from engine.kv.base import KVView, Offset, Offsets
from engine.kv.buffers import capacity, near, part, room, roomy, widened, write
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.plan import KVPlan
from engine.kv.scheme import NATIVE
from engine.kv.storage import Parts
from engine.kv.views import DenseView


def fit_for_padding(kv: KVPlan) -> list[bool]:
    """Which caches keep every token in the model's dtype, and stay so."""
    return [plan.spec.kind == "dense" and plan.scheme is NATIVE for plan in kv.caches]


class PaddedKV:
    """One layer's keys and values of B rows, whose last tokens lie side by side until `settle` gives each row its part
    back. Only for caches that keep every token in the model's dtype and stay so.

    lengths: tokens that each row adds, behind which what is appended is padding, until `align`.
    masked: attention has a mask also where nothing is to be hidden, as mlx-lm's batch does (engine.kv.batched); on a
    GPU bits depend on it.
    """

    def __init__(
        self, caches: Sequence[DenseKV], offsets: Offsets, *, lengths: tuple[int, ...] = (), masked: bool = False
    ) -> None:
        self._caches, self._window, self._offsets = caches, caches[0].window, offsets
        self.scheme = caches[0].scheme
        self._lengths, self._masked = lengths, masked
        self._end = max(cache.offset for cache in caches)
        self._pads = tuple(self._end - cache.offset for cache in caches)
        self._keys = self._gathered([cache.keys for cache in caches])
        self._values = self._gathered([cache.values for cache in caches])
        for b, cache in enumerate(caches):
            cache.lend(partial(self._part, b))

    @property
    def offset(self) -> Offset:
        """Tokens in each row."""
        return self._offsets(tuple(cache.offset for cache in self._caches))

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Take `lengths` for what is appended until `align`."""
        self._lengths = lengths

    def arrays(self) -> list[mx.array]:
        """What is stored of all rows."""
        return [*(self._keys or ()), *(self._values or ())]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and their padding, without slack: what putting them together copied."""
        return sum(array.nbytes // array.shape[2] * self._end for array in self.arrays())

    def held(self) -> tuple[tuple[int, ...], tuple[mx.array | None, ...]]:
        """As `LayerCache.held`, of all rows: where the next token goes, and each row's offset."""
        marks = (self._end, *(cache.offset for cache in self._caches))
        return marks, (*(self._keys or (None,)), *(self._values or (None,)))

    def hold(self, marks: tuple[int, ...], arrays: tuple[mx.array | None, ...]) -> None:
        """As `LayerCache.hold`, of all rows."""
        self._end, *offsets = marks
        for cache, offset in zip(self._caches, offsets, strict=True):
            cache.offset = offset
        keys, values = arrays
        self._keys, self._values = None if keys is None else (keys,), None if values is None else (values,)

    def after_one(self) -> tuple[int, ...]:
        """Its counters once every row has one more token."""
        return tuple(mark + 1 for mark in self.held()[0])

    def places(self) -> list[tuple[int, int, int]]:
        """As `BufferedKV.place`, for each row."""
        assert self._keys is not None
        assert self._values is not None
        end = self._end
        self._keys, self._values = roomy(self._keys, end, near(end + 1)), roomy(self._values, end, near(end + 1))
        first = 0 if self._window is None else max(end + 1 - self._window, 0)
        return [(end, max(pad, first), end + 1) for pad in self._pads]

    def append(self, keys: mx.array, values: mx.array) -> KVView:
        """Store row b of `keys`, `values` [B, K, L, D] behind row b's."""
        offset, start, end = self.offset, self._end, self._end + keys.shape[2]
        if self._keys is None or self._values is None:
            self._keys, self._values = room((keys,), near(end)), room((values,), near(end))
        elif end > capacity(self._keys):
            self._keys, self._values = (widened(buffer, start, near(end)) for buffer in (self._keys, self._values))
        write(self._keys, (keys,), start)
        write(self._values, (values,), start)
        self._end = end
        for cache, length in zip(self._caches, self._lengths or (end - start,) * len(self._caches), strict=True):
            cache.offset += length
        (seen_keys,), (seen_values,) = part(self._keys, 0, end), part(self._values, 0, end)
        return DenseView(seen_keys, seen_values, offset, partial(self._visible, start))

    def align(self) -> None:
        """Move what rows added behind their padding to the end, so that the next token lies side by side again."""
        self._lengths = ()
        late = [self._end - pad - cache.offset for pad, cache in zip(self._pads, self._caches, strict=True)]
        if not any(late) or self._keys is None or self._values is None:
            return
        self._pads = tuple(pad + more for pad, more in zip(self._pads, late, strict=True))
        shift = mx.array(late)[:, None]
        room = capacity(self._keys)
        place = (mx.arange(room)[None] - shift) % room  # [B, C]; what is behind comes before, and is hidden
        self._keys, self._values = _taken(self._keys, place), _taken(self._values, place)

    def settle(self) -> None:
        """Write each row's part into its own cache."""
        for b, cache in enumerate(self._caches):
            cache.keys, cache.values = self._part(b)

    def _visible(self, start: int, length: int, masks: Masks) -> mx.array | str | None:
        if not (self._masked or any(self._pads) or self._window is not None):
            return None if length == 1 else "causal"
        return masks.padded(self._pads, length, start, self._window)

    def _part(self, b: int) -> tuple[Parts | None, Parts | None]:
        pad, offset = self._pads[b], self._caches[b].offset

        def row(buffer: Parts | None) -> Parts | None:
            if buffer is None or not offset:
                return None
            return tuple(array[b : b + 1, :, pad : pad + offset] for array in buffer)

        return row(self._keys), row(self._values)

    def _gathered(self, rows: Sequence[Parts | None]) -> Parts | None:
        """Rows [1, K, ., D] as one array [B, K, C, D] with room for a token more; zeros before the shorter ones. None
        before the first append."""
        begun = {b: row[0] for b, row in enumerate(rows) if row is not None}
        if not begun:
            return None
        _, heads, _, dim = next(iter(begun.values())).shape
        whole = mx.zeros((len(rows), heads, near(self._end + 1), dim), next(iter(begun.values())).dtype)
        for b, row in begun.items():
            pad = self._pads[b]
            whole[b : b + 1, :, pad : self._end] = row[:, :, : self._end - pad]
        return (whole,)


def _taken(buffer: Parts, place: mx.array) -> Parts:
    """Of each row of arrays [B, K, C, D] the tokens at its places [B, C]."""
    return tuple(mx.take_along_axis(array, place[:, None, :, None], axis=2) for array in buffer)
