"""A lever: one decode step of all rows as a compiled trace over buffers of a fixed size.

Equal bits on an x86-64 CPU with MLX's own BLAS, where sums run in the order of keys (tests/oracles/test_compiled.py has
every architecture); never on CUDA, where any mask changes those of attention. A trace serves until a buffer grows or
keys go past its reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.graph.rows import unfit_for_rows
from engine.kv.buffered import BufferedKV
from engine.kv.fixed import Fixed, FixedKV, FixedState, Geometry, Held, Places
from engine.kv.plan import KVPlan
from engine.kv.rows import Caches
from engine.kv.storage import Affine, Native

GEOMETRIES = 64
Step = Callable[[mx.array, mx.array, mx.array, list[mx.array]], list[mx.array]]


@dataclass
class Counts:
    """geometries: traces that were made; steps: forwards that ran one; plain: forwards past the bound, without."""

    geometries: int = 0
    steps: int = 0
    plain: int = 0


class CompiledStep:
    """`bound`: traces that it makes at most; a step that would need another one says None, and nothing has changed."""

    def __init__(self, decoder: Decoder, bound: int = GEOMETRIES) -> None:
        self._decoder, self._bound = decoder, bound
        specs = decoder.spec.caches
        self._group = [list(dict.fromkeys(specs)).index(spec) for spec in specs]  # caches of one spec have one place
        self._traces: dict[Geometry, Step] = {}
        self.counts = Counts()

    def __call__(self, ids: mx.array, rows: Sequence[Caches]) -> mx.array | None:
        """The next ids [B] of rows that have all begun -> logits [B, V]; appends to every cache."""
        placed = [self._places(row) for row in rows]
        geometry = Geometry.of(rows, max(end for row in placed for _, _, end in row))
        if geometry not in self._traces:
            if len(self._traces) >= self._bound:
                self.counts.plain += 1
                return None
            self._traces[geometry] = mx.compile(self._trace(geometry))
            self.counts.geometries += 1
        self.counts.steps += 1
        places = mx.array(placed, mx.int32)
        # Not the first cache's: a layer without attention has one in some models, and nothing comes into it.
        offset = mx.array([max(cache.offset for cache in row) for row in rows], mx.int32)
        arrays = [array for layer in zip(*rows, strict=True) for cache in layer for array in cache.arrays()]
        logits, *arrays = self._traces[geometry](ids, places, offset, arrays)
        left = iter(arrays)
        for layer in zip(*rows, strict=True):
            for cache in layer:
                held = cache.held()[1]
                if any(a is not None for a in held):
                    cache.hold(cache.after_one(), tuple(None if a is None else next(left) for a in held))
        return logits

    def _places(self, row: Caches) -> list[tuple[int, int, int]]:
        """Where a row's next token goes, by group; every cache that holds keys has made room for it."""
        places = [(0, 0, 0)] * (max(self._group, default=0) + 1)
        for cache, group in zip(row, self._group, strict=True):
            if isinstance(cache, BufferedKV) and cache.keys is not None:
                places[group] = cache.place()
        return places

    def _trace(self, geometry: Geometry) -> Step:
        """The step of one geometry, to be compiled."""

        def step(ids: mx.array, places: mx.array, offset: mx.array, arrays: list[mx.array]) -> list[mx.array]:
            where, left = Places(places, offset, geometry.reach), iter(arrays)
            slots: list[Fixed] = []
            for layer, group in zip(geometry.layers, self._group, strict=True):
                held: list[Held] = [tuple(None if a is None else next(left) for a in shapes) for _, shapes in layer]
                schemes = [scheme for scheme, _ in layer if scheme is not None]
                slots.append(FixedKV(schemes, held, where, group) if schemes else FixedState(held, where))
            hidden = self._decoder.forward_hidden(ids[:, None], slots)
            logits = self._decoder.project(hidden)[:, -1, :]
            after = chain.from_iterable(chain.from_iterable(slot.held() for slot in slots))
            return [logits, *(a for a in after if a is not None)]

        return step


def unfit_for_compile(decoder: Decoder, kv: KVPlan, device: str, arch: str, blas: str) -> str:
    """Why a step of this model and KV plan is not compiled here; "" where it is."""
    if (device, arch, blas) != ("cpu", "x86_64", "bundled"):
        return f"bits were measured equal on an x86_64 CPU with the bundled BLAS, this is {arch} {device} with {blas}"
    unfit = unfit_for_rows(decoder.spec)
    if unfit:
        return unfit
    for i, cache in enumerate(kv.caches):
        if cache.spec.kind == "chunked" or cache.spec.grows:
            return f"cache {i} keeps {cache.spec.layout}, which has no fixed place for a token"
        if not all(isinstance(side, (Native, Affine)) for side in (cache.scheme.keys, cache.scheme.values)):
            return f"cache {i} is {cache.scheme.name}, and every step would unpack all that its buffer has room for"
    return ""
