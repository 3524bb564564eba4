"""The bare graph over caches of its own: forwards without sampling, requests or schedule, as teacher forcing and
measurements want them.

Letters: L tokens of a forward, V vocabulary.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from engine.errors import InvalidValue
from engine.graph.decoder import Decoder
from engine.graph.model import Model
from engine.kv.base import LayerCache, live_scheme
from engine.kv.codec import Identity, read_caches, write_caches
from engine.kv.plan import KVPlan
from engine.kv.publish import require_boundary
from engine.types import CacheLayer, ForwardTrace, check_counts


@dataclass(frozen=True)
class GraphRun:
    """A decoder and the caches that its forwards append to."""

    decoder: Decoder
    kv: KVPlan
    caches: list[LayerCache]

    @classmethod
    def begin(cls, decoder: Decoder, kv: KVPlan) -> GraphRun:
        """Over empty caches of the plan."""
        return cls(decoder, kv, kv.fresh())

    def __call__(self, ids: mx.array) -> mx.array:
        """Token ids [1, L] -> unevaluated logits [1, L, V]; the caches are converted as in generation."""
        logits = self.decoder.project(self.decoder.forward_hidden(ids, self.caches))
        self.convert()
        return logits

    def fill(self, token_ids: Sequence[int], chunk: int) -> None:
        """Append tokens in forwards of at most `chunk`, evaluated, and convert nothing."""
        for start in range(0, len(token_ids), chunk):
            self.decoder.forward_hidden(mx.array(list(token_ids[start : start + chunk]))[None], self.caches)
            mx.eval(self.arrays())

    def convert(self) -> None:
        """Carry out the plan on caches that have reached its start."""
        self.kv.convert(self.caches)

    def arrays(self) -> list[mx.array]:
        """What the caches hold, for evaluation."""
        return [array for cache in self.caches for array in cache.arrays()]

    def twin(self) -> GraphRun:
        """The same tokens under handles of their own: what is done to it leaves this one as it is."""
        caches = [copy.copy(cache) for cache in self.caches]
        for new, old in zip(caches, self.caches, strict=True):
            new.restore(old.snapshot())
        return GraphRun(self.decoder, self.kv, caches)

    def describe(self) -> tuple[CacheLayer, ...]:
        """The live caches, read from the arrays that are there now."""
        return tuple(cache.describe(i) for i, cache in enumerate(self.caches))

    def kv_status(self) -> str:
        """Whether the asked scheme is really on, in the plan's words."""
        return self.kv.status(self.caches)


# Caches that hold a prefix -> other caches that hold it.
HandOver = Callable[[list[LayerCache]], list[LayerCache]]


@dataclass(frozen=True)
class Forced:
    """A teacher-forced run: logits [L, V], per position the scheme attended, residual streams [L, D] and what the logit
    lens makes of their last positions [N, V] if asked, the caches."""

    logits: mx.array
    kv_live: tuple[str, ...]
    layers: dict[int, mx.array]
    lens: dict[int, mx.array]
    caches: list[LayerCache]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How `length` tokens are cut into forwards: the first `head` in one of their own, then chunks, the last `tail` one
    at a time; with a `prefix`, so many first, and the rest as a run that goes on from there. Or `sizes`, one by one.

    Raises `InvalidValue` for what cannot be.
    """

    length: int
    chunk: int
    head: int = 0
    tail: int = 1
    prefix: int = 0
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.sizes is not None:
            whole = all(not isinstance(n, bool) and isinstance(n, int) and n >= 1 for n in self.sizes)
            if not whole or sum(self.sizes) != self.length:
                raise InvalidValue("sizes", self.sizes, f"integers >= 1 that add up to {self.length} tokens")
            return
        check_counts({"chunk": (self.chunk, 1), "head": (self.head, 0), "tail": (self.tail, 1)})
        if not 0 <= self.head < self.length:
            raise InvalidValue("head", self.head, f"0..{self.length - 1}")
        if not 1 <= self.tail <= self.length - self.head:
            raise InvalidValue("tail", self.tail, f"1..{self.length - self.head}")
        most = 0 if self.head else self.length - self.tail
        if isinstance(self.prefix, bool) or not isinstance(self.prefix, int) or not 0 <= self.prefix <= most:
            raise InvalidValue("prefix", self.prefix, f"0..{most} tokens (before the tail, and without a head)")

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where the forwards begin and end."""
        if self.sizes is not None:
            return tuple(itertools.accumulate(self.sizes, initial=0))
        bounds = [0, self.head] if self.head else [0]
        for end in (self.prefix, self.length - self.tail):
            while bounds[-1] < end:
                bounds.append(min(bounds[-1] + self.chunk, end))
        return (*bounds, *range(bounds[-1] + 1, self.length + 1))


def through_file(kv: KVPlan, identity: Identity) -> HandOver:
    """Caches to a file and out of it again into fresh ones, as whoever finds a kept prefix has them."""

    def hand_over(caches: list[LayerCache]) -> list[LayerCache]:
        with tempfile.TemporaryDirectory(prefix="frontier-prefix-") as folder:
            path = Path(folder) / "prefix.kv"
            write_caches(path, caches, identity)
            restored = read_caches(path, kv, identity)
            mx.eval([array for cache in restored for array in cache.arrays()])  # the file goes away
        return restored

    return hand_over


def teacher_force(
    decoder: Decoder,
    kv: KVPlan,
    ids: tuple[int, ...],
    cut: Cut,
    *,
    layers: bool = False,
    lens: int = 0,
    hand_over: HandOver | None = None,
) -> Forced:
    """Logits after every token of `ids` over fresh caches. layers: keep the residual streams; lens: so many last
    positions of them go through the logit lens; hand_over: what becomes of the caches behind the cut's prefix."""
    caches = kv.fresh()
    rows: list[mx.array] = []
    live: list[str] = []
    residuals: dict[int, list[mx.array]] = {}
    for start, end in itertools.pairwise(cut.bounds):
        live += [live_scheme(caches)] * (end - start)
        taps: dict[int, mx.array] | None = {} if layers or lens else None
        hidden = decoder.forward_hidden(mx.array(ids[start:end])[None], caches, taps)
        rows.append(decoder.project(hidden)[0])  # [end - start, V]
        for i, tap in (taps or {}).items():
            residuals.setdefault(i, []).append(tap[0])
        kv.convert(caches)
        mx.eval(rows[-1], [a for cache in caches for a in cache.arrays()], [r[-1] for r in residuals.values()])
        if hand_over is not None and end == cut.prefix:
            caches = hand_over(caches)
    joined = {i: mx.concatenate(parts) for i, parts in residuals.items()}
    seen = {i: decoder.lens(array[len(ids) - lens :]) for i, array in joined.items()} if lens else {}
    logits = mx.concatenate(rows)
    mx.eval(logits, joined, seen)
    return Forced(logits, tuple(live), joined if layers else {}, seen, caches)


def forced_trace(model: Model, kv: KVPlan, ids: tuple[int, ...], cut: Cut, *, layers: bool, lens: int) -> ForwardTrace:
    """`teacher_force` with its caches described; a prefix goes through a file.

    Raises `InvalidValue` for a prefix that may not be published, and for a lens that this model or length has not.
    """
    hand_over = None
    if isinstance(lens, bool) or not isinstance(lens, int) or not 0 <= lens <= len(ids):
        raise InvalidValue("lens", lens, f"0..{len(ids)} positions")
    if lens:
        model.decoder.check_lens()
    if cut.prefix:
        require_boundary(kv, cut.chunk, cut.prefix)
        hand_over = through_file(kv, Identity.of(model.sha256, model.dtype, kv, cut.chunk))
    run = teacher_force(model.decoder, kv, ids, cut, layers=layers, lens=lens, hand_over=hand_over)
    return ForwardTrace(
        logits=run.logits,
        kv_live=run.kv_live,
        kv_status=kv.status(run.caches),
        caches=tuple(cache.describe(i) for i, cache in enumerate(run.caches)),
        layers={f"layer.{i}": array for i, array in run.layers.items()},
        lens={f"lens.{i}": array for i, array in run.lens.items()},
    )
