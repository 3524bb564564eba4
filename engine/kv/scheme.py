"""A KV scheme: how keys and how values are stored, and the view that attends them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv.base import KVView
from engine.kv.storage import Affine, Native, Parts, Storage
from engine.kv.views import AffineView, DenseView, UnpackedView, Visible


@dataclass(frozen=True)
class Scheme:
    """`name`: as reports, plans and cache keys call it."""

    name: str
    keys: Storage
    values: Storage

    def view(self, keys: Parts, values: Parts, offset: int, visible: Visible) -> KVView:
        """What a forward attends: the parts up to now, `offset` tokens of them from before it."""
        if isinstance(self.keys, Affine) and isinstance(self.values, Affine):
            return AffineView(keys, values, offset, visible, (self.keys, self.values))
        if isinstance(self.keys, Native) and isinstance(self.values, Native):
            return DenseView(keys[0], values[0], offset, visible)
        return UnpackedView(self.keys.unpack(keys), self.values.unpack(values), offset, visible)


NATIVE = Scheme("native", Native(), Native())


def affine(bits: int, group_size: int, value_bits: int | None = None) -> Scheme:
    """Uniform affine storage; `value_bits` where values have a width of their own."""
    each = bits if value_bits is None else value_bits
    widths = str(bits) if each == bits else f"{bits}/{each}"
    return Scheme(f"affine{widths}:g{group_size}", Affine(bits, group_size), Affine(each, group_size))
