"""Rows in one padded buffer: when attention has a mask, and what it hides."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine.kv.base import Offsets
from engine.kv.dense import DenseKV
from engine.kv.masks import Masks
from engine.kv.padded import PaddedKV
from engine.kv.scheme import NATIVE
from engine.kv.spec import CacheSpec


def mask_of(lengths: tuple[int, ...], masked: bool) -> Any:
    """What one more token of each row sees."""
    caches = [DenseKV(CacheSpec(), NATIVE) for _ in lengths]
    for kv, length in zip(caches, lengths, strict=True):
        kv.append(*(mx.ones((1, 1, length, 4)) for _ in range(2)))
    slot = PaddedKV(caches, Offsets(), masked=masked)
    view: Any = slot.append(*(mx.ones((len(lengths), 1, 1, 4)) for _ in range(2)))  # type: ignore[union-attr,arg-type]
    return view.visible(1, Masks())


@pytest.mark.parametrize(("lengths", "hides"), [((3, 3), False), ((3, 5), True)])
def test_a_mask_is_there_where_something_is_hidden_or_always_as_in_the_oracle_s_batch(
    lengths: tuple[int, int], hides: bool
) -> None:
    """On a GPU any mask changes bits: there `composition` has one always, as mlx-lm's batch does."""
    assert (mask_of(lengths, masked=False) is None) == (not hides)
    keys = range(max(lengths) + 1)
    assert mask_of(lengths, masked=True).tolist() == [[[[k >= max(lengths) - n for k in keys]]] for n in lengths]
