"""Levers on products.

`fuse`: projections of the same input as one product. Equal bits for quantised weights on every backend that was
measured (reference: the lab's record); dense ones would change bits on CUDA and are left alone. `flatten`: the packed
products of a batched step as one matrix product each.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.errors import InvalidValue
from engine.graph.attention import Attention
from engine.graph.decoder import Decoder
from engine.graph.mlp import Mlp
from engine.graph.modules import modules
from engine.graph.params import LinearMap, Packed, PackedLinear, Packing


def fuse(decoder: Decoder) -> None:
    """Join query, key and value, and gate and up, wherever they are packed alike. `InvalidValue` where none is."""
    joined = 0
    for module in modules(decoder.layers, (Attention, Mlp)):
        if isinstance(module, Attention) and module.apart:
            module.joined = _joined(module.apart)
            joined += module.joined is not None
        elif isinstance(module, Mlp) and module.gate is not None and not module.fused:
            module.joined = _joined([module.gate, module.up])
            joined += module.joined is not None
    if not joined:
        raise InvalidValue("fuse", "quantized", "none: no projections of this model are packed alike side by side")


def flatten(decoder: Decoder) -> None:
    """Let packed maps take the rows of a step [B, 1, I] as [B, I]: on CUDA one matrix product instead of B vector ones,
    with other bits from eight rows on."""
    for packed in modules(vars(decoder).values(), (Packed,)):
        packed.flat = True


def count_joined(decoder: Decoder) -> int:
    """How many attentions and MLPs run joined projections."""
    return sum(module.joined is not None for module in modules(decoder.layers, (Attention, Mlp)))


def _joined(maps: Sequence[LinearMap]) -> PackedLinear | None:
    """One map whose output is the maps' outputs behind each other; None unless all are packed alike."""
    if not all(isinstance(each, PackedLinear) for each in maps):
        return None
    packed = [each.packed for each in maps if isinstance(each, PackedLinear)]
    biases = [each.bias for each in maps if isinstance(each, PackedLinear)]
    if any(each.how != packed[0].how for each in packed) or len({bias is None for bias in biases}) > 1:
        return None
    arrays = [
        None if column[0] is None else mx.concatenate([array for array in column if array is not None])
        for column in zip(*(each.arrays for each in packed), strict=True)
    ]
    weight, scales, zeros = arrays
    assert weight is not None
    assert scales is not None
    bias = None if biases[0] is None else mx.concatenate([each for each in biases if each is not None])
    whole = PackedLinear(Packed(weight, scales, zeros, Packing(**packed[0].how)), bias)
    mx.eval([array for array in (*whole.packed.arrays, bias) if array is not None])
    return whole
