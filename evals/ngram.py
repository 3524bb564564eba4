"""A byte n-gram model: what a held-out text costs without any network, in bits per byte.

Interpolated as Witten and Bell have it, from order 3 (three bytes of context) down to the uniform distribution:

    p_k(c | h) = (n(h c) + t(h) p_(k-1)(c | h without its first byte)) / (n(h) + t(h)),   p_(-1)(c) = 1 / 256

where n counts and t(h) is the number of distinct bytes seen behind h. A history that was never seen leaves p_(k-1) as
it is. No number is fitted, so the held-out text has no part in it. A text begins with no context: its first byte is
scored by order 0, its second by order 1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from engine import errors

ORDER = 3
BYTES = 256
Codes = NDArray[np.uint64]


class ByteNgram:
    """Counts of all byte sequences of up to `order` + 1 bytes of some texts."""

    def __init__(self, texts: Iterable[bytes], order: int = ORDER) -> None:
        if not 0 <= order <= 6:
            raise errors.InvalidValue("order", order, "0 to 6: a sequence is kept in 64 bits")
        self.order = order
        arrays = [np.frombuffer(text, np.uint8) for text in texts]
        self._seen = [_counted([codes(array, width) for array in arrays]) for width in range(1, order + 2)]
        self._histories = [_histories(*seen) for seen in self._seen]

    def bits(self, text: bytes) -> float:
        """-log2 p of a whole text, in bits."""
        array = np.frombuffer(text, np.uint8)
        p = np.full(len(array), 1 / BYTES)
        for k in range(self.order + 1):
            # from byte k on there is a history of k bytes; the ones before stay with what they have
            whole = codes(array, k + 1)
            joint = _found(whole, *self._seen[k])
            keys, totals, kinds = self._histories[k]
            total, kind = _found(whole >> np.uint64(8), keys, totals), _found(whole >> np.uint64(8), keys, kinds)
            known = total > 0
            mixed = (joint + kind * p[k:]) / np.maximum(total + kind, 1)
            p[k:] = np.where(known, mixed, p[k:])
        return float(-np.log2(p).sum())

    def bits_per_byte(self, texts: Iterable[bytes]) -> float:
        """The bits of all texts over their bytes; none is `InvalidValue`."""
        held = list(texts)
        count = sum(map(len, held))
        if not count:
            raise errors.InvalidValue("texts", "no byte", "at least one")
        return sum(map(self.bits, held)) / count


def codes(array: NDArray[np.uint8], width: int) -> Codes:
    """Every run of `width` bytes as one number, the last byte lowest."""
    count = max(0, len(array) - width + 1)
    made = np.zeros(count, np.uint64)
    for at in range(width):
        made = (made << np.uint64(8)) | array[at : at + count].astype(np.uint64)
    return made


def _counted(parts: list[Codes]) -> tuple[Codes, NDArray[np.int64]]:
    keys, counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]), return_counts=True)
    return keys, counts.astype(np.int64)


def _histories(keys: Codes, counts: NDArray[np.int64]) -> tuple[Codes, NDArray[np.int64], NDArray[np.int64]]:
    """Of each history: how often a byte came behind it, and how many distinct ones did."""
    histories, first = np.unique(keys >> np.uint64(8), return_index=True)
    if not len(histories):
        return histories, counts, counts
    kinds = np.diff(np.append(first, len(keys)))
    return histories, np.add.reduceat(counts, first), kinds.astype(np.int64)


def _found(wanted: Codes, keys: Codes, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each wanted key, 0 where it is not there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
