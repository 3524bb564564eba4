"""A KV scheme: how keys and how values are stored, and the view that attends them."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.kv.base import KVView, Offset
from engine.kv.request import LayerRequest
from engine.kv.storage import Affine, Native, Parts, Storage
from engine.kv.turboquant import TurboKeys, TurboValues
from engine.kv.views import AffineView, DenseView, Visible


@dataclass(frozen=True)
class Scheme:
    """`name`: as reports, plans and cache keys call it."""

    name: str
    keys: Storage
    values: Storage

    def view(self, keys: Parts, values: Parts, offset: Offset, visible: Visible, dtype: mx.Dtype) -> KVView:
        """What a forward attends: the parts up to now, `offset` tokens of them from before it. `dtype`: of what it
        appended, and of what is unpacked."""
        if isinstance(self.keys, Affine) and isinstance(self.values, Affine):
            return AffineView(keys, values, offset, visible, (self.keys, self.values))
        if isinstance(self.keys, Native) and isinstance(self.values, Native):
            return DenseView(keys[0], values[0], offset, visible)
        unpacked = self.keys.unpack(keys).astype(dtype), self.values.unpack(values).astype(dtype)
        return DenseView(*unpacked, offset, visible)


NATIVE = Scheme("native", Native(), Native())


def scheme_of(asked: LayerRequest) -> Scheme:
    """What a layer's request stands for."""
    if asked.turbo:
        return Scheme(asked.name, TurboKeys(asked.bits), TurboValues(asked.value_bits))
    return Scheme(asked.name, Affine(asked.bits, asked.group_size), Affine(asked.value_bits, asked.group_size))
