"""From a request's KV notation to a plan per layer, and the schedule that carries it out.

Notation: "native" | "kv8" | "kv4:g32" | "kv4:start=5000" | "mixed:<kv_config.json>". "kv8" means start 0, so that
what is asked for is on from the first conversion; mlx-lm's command line starts at 5000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import InvalidValue, NotBuilt
from engine.kv.base import LayerCache, live_scheme, scheme_name
from engine.kv.dense import DenseKV
from engine.kv.quantized import QuantizedKV
from engine.kv.recurrent import StateKV
from engine.kv.rotating import ChunkedKV, RotatingKV
from engine.kv.spec import CacheSpec

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
ALLOWED = "native, kv8, kv4 (kv2 kv3 kv5 kv6), each with :g32|:g64|:g128 and :start=N, or mixed:<kv_config.json>"


@dataclass(frozen=True)
class KVRequest:
    """A parsed KV notation. `start`: the offset from which a layer is converted, in tokens."""

    kind: str
    bits: int | None = None
    group_size: int = 64
    start: int = 0
    path: str | None = None

    def __str__(self) -> str:
        if self.kind == "native":
            return "native"
        if self.kind == "mixed":
            return f"mixed:{self.path}"
        tail = (f":g{self.group_size}" if self.group_size != 64 else "") + (
            f":start={self.start}" if self.start else ""
        )
        return f"kv{self.bits}{tail}"


def parse_kv(text: str) -> KVRequest:
    """Parse a KV notation; anything unknown is `InvalidValue` naming the field and what is allowed."""
    head, *options = text.split(":")
    if text in ("native", "bf16"):
        return KVRequest("native")
    if head == "mixed" and len(options) >= 1 and options[0]:
        return KVRequest("mixed", path=text.split(":", 1)[1])
    digits = head.removeprefix("kv")
    if not head.startswith("kv") or not (digits.isascii() and digits.isdigit()) or int(digits) not in BITS:
        raise InvalidValue("kv", text, ALLOWED)
    group_size, start, seen = 64, 0, set()
    for option in options:
        name = "start" if option.startswith("start=") else "g"
        value = option.removeprefix("start=") if name == "start" else option.removeprefix("g")
        if (
            name in seen
            or not (value.isascii() and value.isdigit())
            or (name == "g" and (option[0] != "g" or int(value) not in GROUP_SIZES))
        ):
            raise InvalidValue("kv", text, ALLOWED)
        seen.add(name)
        if name == "start":
            start = int(value)
        else:
            group_size = int(value)
    return KVRequest("uniform", bits=int(digits), group_size=group_size, start=start)


_FRESH: dict[str, Callable[[CacheSpec], LayerCache]] = {
    "dense": lambda spec: DenseKV(spec.window),
    "rotating": RotatingKV,
    "chunked": ChunkedKV,
    "state": StateKV,
}


@dataclass(frozen=True)
class KVPlan:
    """What each layer's cache becomes and when. `layers[i]` is (bits, group size), or None for native; a recurrent
    state has no keys and stays native, as in mlx-lm."""

    request: KVRequest
    layers: tuple[tuple[int, int] | None, ...]
    caches: tuple[CacheSpec, ...]

    @classmethod
    def build(cls, request: KVRequest, caches: Sequence[CacheSpec]) -> KVPlan:
        """Check the request against the model's caches; what cannot be honoured is refused here, not at a token."""
        if request.kind == "mixed":
            raise NotBuilt("per-layer mixed KV", "the oracle side runs: frontier golden record records it")
        if request.kind == "native":
            return cls(request, tuple(None for _ in caches), tuple(caches))
        bits, group = request.bits, request.group_size
        assert bits is not None
        for i, cache in enumerate(caches):
            if cache.only_native:
                raise InvalidValue("kv", str(request), f"native: layer {i} {cache.only_native}")
            for dim in cache.head_dims:
                if dim % group:
                    fitting = [g for g in GROUP_SIZES if dim % g == 0]
                    allowed = f"a group size that divides head_dim {dim} of layer {i}: {fitting or 'none'}"
                    raise InvalidValue("kv group size", group, allowed)
            if cache.kind not in ("dense", "state"):
                raise InvalidValue("kv", str(request), f"native: layer {i} keeps its keys {cache.layout}")
        if all(cache.kind == "state" for cache in caches):
            raise InvalidValue("kv", str(request), "native: no layer of this model keeps keys and values")
        layers = tuple(None if cache.kind == "state" else (bits, group) for cache in caches)
        return cls(request, layers, tuple(caches))

    def describe(self) -> tuple[str, ...]:
        """The planned scheme of each layer."""
        return tuple(scheme_name(*layer) if layer else "native" for layer in self.layers)

    def fresh(self) -> list[LayerCache]:
        """New empty caches, one per layer."""
        return [_FRESH[spec.kind](spec) for spec in self.caches]

    def convert(self, caches: list[LayerCache]) -> None:
        """After a forward: replace, in place, each dense cache that has reached its start by a quantised one."""
        for i, (cache, layer) in enumerate(zip(caches, self.layers, strict=True)):
            if layer is not None and isinstance(cache, DenseKV) and cache.offset >= self.request.start:
                caches[i] = QuantizedKV.from_dense(cache, *layer)

    def status(self, caches: list[LayerCache]) -> str:
        """Whether the asked scheme is really on, read from the live caches."""
        live = live_scheme(caches)
        if self.request.kind != "native" and live == "native":
            return "native (start not reached)"
        return live
