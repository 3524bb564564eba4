"""From a request's KV notation and a model's caches to a plan per cache, and the schedule that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import InvalidValue
from engine.kv.base import LayerCache, live_scheme
from engine.kv.buffered import BufferedKV
from engine.kv.dense import DenseKV
from engine.kv.recurrent import StateKV
from engine.kv.request import GROUP_SIZES, KVRequest, LayerRequest
from engine.kv.rotating import ChunkedKV, RotatingKV
from engine.kv.scheme import NATIVE, Scheme, scheme_of
from engine.kv.spec import CacheSpec
from engine.kv.turboquant import DIMS

_FRESH: dict[str, Callable[[CacheSpec, Scheme], LayerCache]] = {
    "dense": DenseKV,
    "rotating": RotatingKV,
    "chunked": ChunkedKV,
    "state": lambda spec, scheme: StateKV(spec),
}


@dataclass(frozen=True)
class CachePlan:
    """What one cache becomes. `why`: where it stays native although the request is not, the reason."""

    spec: CacheSpec
    scheme: Scheme
    why: str = ""

    def __str__(self) -> str:
        return self.scheme.name + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class KVPlan:
    """What each cache becomes and when."""

    request: KVRequest
    caches: tuple[CachePlan, ...]

    @classmethod
    def build(cls, request: KVRequest, caches: Sequence[CacheSpec]) -> KVPlan:
        """Check the request against the model's caches; what cannot be honoured is refused here, not at a token, or
        with `:skip` left native and said.

        A recurrent state has no keys and stays native under a request for all layers, as in mlx-lm; a plan that names
        it is refused. Raises `InvalidValue`, `CorruptFile`.
        """
        asked = request.layers(len(caches))
        plans = [_planned(request, i, spec, each) for i, (spec, each) in enumerate(zip(caches, asked, strict=True))]
        if request.kind != "native" and all(plan.scheme is NATIVE for plan in plans):
            why = next((plan.why for plan in plans if plan.why), "the plan names no layer")
            raise InvalidValue("kv", str(request), f"native: no layer of this model can hold it ({why})")
        return cls(request, tuple(plans))

    def describe(self) -> tuple[str, ...]:
        """The planned scheme of each cache, with the reason where it stays native unasked."""
        return tuple(map(str, self.caches))

    def fresh(self) -> list[LayerCache]:
        """New empty caches; packed from the start where the request says on-write."""
        on_write = self.request.on_write
        return [_FRESH[plan.spec.kind](plan.spec, plan.scheme if on_write else NATIVE) for plan in self.caches]

    def empty(self, index: int, kind: str, fresh: LayerCache) -> LayerCache:
        """`fresh`, cache `index` of `fresh()`, in its converted form where `kind` says so."""
        if kind == fresh.kind or not isinstance(fresh, BufferedKV) or fresh.scheme is not NATIVE:
            return fresh
        return fresh.converted(self.caches[index].scheme)

    def convert(self, caches: list[LayerCache]) -> None:
        """After a forward: replace, in place, each native cache that has reached its start by one of its scheme."""
        for i, (cache, plan) in enumerate(zip(caches, self.caches, strict=True)):
            if plan.scheme is NATIVE or not isinstance(cache, BufferedKV) or cache.scheme is not NATIVE:
                continue
            if cache.offset >= self.request.start:
                caches[i] = cache.converted(plan.scheme)

    def status(self, caches: list[LayerCache]) -> str:
        """Whether the asked scheme is really on, read from the live caches."""
        live = live_scheme(caches)
        if self.request.kind != "native" and live == "native":
            return "native (start not reached)"
        return live


def _planned(request: KVRequest, index: int, spec: CacheSpec, asked: LayerRequest | None) -> CachePlan:
    if asked is None:
        return CachePlan(spec, NATIVE)
    if spec.kind == "state" and request.kind != "mixed":
        return CachePlan(spec, NATIVE, "a recurrent state has no keys")
    field, value, allowed = _obstacle(spec, asked)
    if not field:
        return CachePlan(spec, scheme_of(asked))
    if request.skip:
        return CachePlan(spec, NATIVE, f"skipped: {field} {value}; {allowed}")
    raise InvalidValue(field, value if field != "kv" else str(request), f"{allowed} (layer {index}; or :skip)")


def _obstacle(spec: CacheSpec, asked: LayerRequest) -> tuple[str, object, str]:
    """What keeps a cache from its request: field, value, what is allowed; ("", None, "") where nothing does."""
    if spec.kind == "state":
        return "kv", "", "native: a recurrent state has no keys"
    if spec.only_native:
        return "kv", "", f"native: it {spec.only_native}"
    if spec.kind == "chunked":
        return "kv", "", f"native: it keeps its keys {spec.layout}, and nobody defines packed ones there"
    for dim in spec.head_dims:
        if asked.turbo and dim not in DIMS:
            return "head_dim", dim, f"one of {DIMS} for turbo"
        if dim % asked.group_size:
            fitting = [group for group in GROUP_SIZES if dim % group == 0]
            return "kv group size", asked.group_size, f"one that divides head_dim {dim}: {fitting or 'none'}"
    if asked.turbo and spec.kind != "dense":
        return "kv", "", f"native: turbo is for layers that keep every token, it keeps {spec.layout}"
    return "", None, ""
