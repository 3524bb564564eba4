"""A lever: one decode step of all rows as a compiled trace over buffers of a fixed size.

Equal bits on an x86-64 CPU where sums run in the order of keys: with MLX's own BLAS always
(tests/oracles/test_compiled.py has every architecture), with another as far as `engine.graph.order` finds it so; never
on CUDA, where any mask changes those of attention. A trace serves until a buffer grows or keys go past its reach. It is
made for shapes that come again: where rows join and leave at every step, steps run without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import mlx.core as mx

from engine.graph.attention import Attention
from engine.graph.decoder import Decoder
from engine.graph.modules import modules
from engine.graph.order import Heads, in_order
from engine.graph.rows import unfit_for_rows
from engine.kv.fixed import Fixed, FixedKV, FixedState, Geometry, Held, Places, holders, places
from engine.kv.plan import KVPlan
from engine.kv.rows import Slot
from engine.kv.storage import Affine, Native

GEOMETRIES = 64
PATIENCE = 2
# Keys that are tried out at most: a try of all lengths of a longer reach would take as long as hundreds of steps.
FARTHEST = 512
Step = Callable[[mx.array, mx.array, mx.array, list[mx.array]], list[mx.array]]


@dataclass
class Counts:
    """geometries: traces that were made; steps: forwards that ran one; plain: forwards without: of shapes that had not
    come again yet, or (`unordered`) whose sums this BLAS cuts in parts."""

    geometries: int = 0
    steps: int = 0
    plain: int = 0
    unordered: int = 0


class CompiledStep:
    """tried: whether the order of sums is tried out before a trace is made; bound: traces that are kept, those that
    served last; patience: steps of a geometry that run without before one is made of it."""

    def __init__(self, decoder: Decoder, *, tried: bool, bound: int = GEOMETRIES, patience: int = PATIENCE) -> None:
        self._decoder, self._tried, self._bound, self._patience = decoder, tried, bound, patience
        specs = decoder.spec.caches
        self._group = [list(dict.fromkeys(specs)).index(spec) for spec in specs]  # caches of one spec have one place
        attention = (part.spec for part in modules(vars(decoder).values(), (Attention,)))
        self._heads = {Heads(s.heads, s.kv_heads, s.head_dim, s.v_dim or s.head_dim) for s in attention}
        self._ordered: dict[object, bool] = {}
        self._seen: OrderedDict[Geometry, int] = OrderedDict()
        self._traces: OrderedDict[Geometry, Step] = OrderedDict()
        self.counts = Counts()

    def __call__(self, ids: mx.array, slots: Sequence[Slot], offsets: list[int]) -> mx.array | None:
        """The next ids [B] of rows that have all begun, whose offsets are these -> logits [B, V]; appends to every
        slot. None where the step has to run without, and no slot holds anything new."""
        placed = self._placed(slots, len(offsets))
        layers = [holders(slot) for slot in slots]
        geometry = Geometry.of(len(offsets), layers, max(end for row in placed for _, _, end in row))
        trace = self._trace_of(geometry)
        if trace is None:
            self.counts.plain += 1
            return None
        self.counts.steps += 1
        arrays = [a for holder in chain(*layers) for a in holder.held()[1] if a is not None]
        logits, *arrays = trace(ids, mx.array(placed, mx.int32), mx.array(offsets, mx.int32), arrays)
        left = iter(arrays)
        for holder in chain(*layers):
            held = holder.held()[1]
            if any(a is not None for a in held):
                holder.hold(holder.after_one(), tuple(None if a is None else next(left) for a in held))
        return logits

    def _trace_of(self, geometry: Geometry) -> Step | None:
        if geometry in self._traces:
            self._traces.move_to_end(geometry)
            return self._traces[geometry]
        seen = self._seen.pop(geometry, 0)
        self._seen[geometry] = seen + 1
        if len(self._seen) > self._bound:
            self._seen.popitem(last=False)
        if seen < self._patience:
            return None
        if not self._in_order(geometry):
            self.counts.unordered += 1
            return None
        del self._seen[geometry]
        if len(self._traces) >= self._bound:
            self._traces.popitem(last=False)
        self._traces[geometry] = mx.compile(self._trace(geometry))
        self.counts.geometries += 1
        return self._traces[geometry]

    def _in_order(self, geometry: Geometry) -> bool:
        if not self._tried:
            return True
        return all(self._ordered_at(heads, *each) for each in geometry.native() for heads in self._heads)

    def _ordered_at(self, heads: Heads, dtype: mx.Dtype, lengths: range, reach: int) -> bool:
        key = heads, dtype, lengths, reach
        if key not in self._ordered:
            self._ordered[key] = reach <= FARTHEST and in_order(heads, dtype, lengths, reach)
        return self._ordered[key]

    def _placed(self, slots: Sequence[Slot], rows: int) -> list[list[tuple[int, int, int]]]:
        """Where each row's next token goes, by group; every cache that holds keys has made room for it."""
        groups = [[(0, 0, 0)] * rows for _ in range(max(self._group, default=0) + 1)]
        for slot, group in zip(slots, self._group, strict=True):
            groups[group] = places(slot) or groups[group]
        return [list(row) for row in zip(*groups, strict=True)]

    def _trace(self, geometry: Geometry) -> Step:
        """The step of one geometry, to be compiled."""

        def step(ids: mx.array, places: mx.array, offset: mx.array, arrays: list[mx.array]) -> list[mx.array]:
            where, left = Places(places, offset, geometry.reach), iter(arrays)
            slots: list[Fixed] = []
            for layer, group in zip(geometry.layers, self._group, strict=True):
                held: list[Held] = [tuple(None if a is None else next(left) for a in shapes) for _, shapes in layer]
                schemes = [scheme for scheme, _ in layer if scheme is not None]
                slots.append(FixedKV(schemes, held, where, group) if schemes else FixedState(held[0], where))
            hidden = self._decoder.forward_hidden(ids[:, None], slots)
            logits = self._decoder.project(hidden)[:, -1, :]
            after = chain.from_iterable(chain.from_iterable(slot.held() for slot in slots))
            return [logits, *(a for a in after if a is not None)]

        return step


def unfit_for_compile(decoder: Decoder, kv: KVPlan, device: str, arch: str) -> str:
    """Why a step of this model and KV plan is not compiled here; "" where it is."""
    if (device, arch) != ("cpu", "x86_64"):
        return f"bits were measured equal on an x86_64 CPU, this is {arch} {device}"
    unfit = unfit_for_rows(decoder.spec, one_buffer=True)  # others run one by one, where each is alone
    if unfit:
        return unfit
    for i, cache in enumerate(kv.caches):
        if cache.spec.kind == "chunked" or cache.spec.grows:
            return f"cache {i} keeps {cache.spec.layout}, which has no fixed place for a token"
        if not all(isinstance(side, (Native, Affine)) for side in (cache.scheme.keys, cache.scheme.values)):
            return f"cache {i} is {cache.scheme.name}, and every step would unpack all that its buffer has room for"
    return ""
