"""The engine's front: load a model, then run requests on it.

Everything that a request asks for is planned and checked before anything is allocated: an error is raised by the call
that asked, not by a token.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import mlx.core as mx

from engine import backend
from engine.artifacts.checkpoint import has_tokenizer
from engine.artifacts.profile import Profile
from engine.artifacts.resolve import resolve_model
from engine.artifacts.tokenizer import Tokenizer, load_tokenizer
from engine.config import EngineConfig
from engine.errors import InvalidValue, UnknownField
from engine.graph.compiled import CompiledStep, Counts
from engine.graph.fused import flatten
from engine.graph.lean import lean, unfit_for_lean
from engine.graph.model import Model, load_model
from engine.kv.base import LayerCache
from engine.kv.plan import KVPlan
from engine.kv.project import Projector, prefill_lengths
from engine.kv.request import parse_kv
from engine.levers import machine_defaults
from engine.method import METHODS
from engine.method.base import Method, Task
from engine.method.continuations import continue_context
from engine.method.forward import Cut, GraphRun, forced_trace
from engine.method.live import fitting, live_levers
from engine.method.rehearse import rehearse
from engine.sample.argmax import unfit_for_normalised
from engine.sched.admission import Admission, kv_limit
from engine.sched.loop import Loop
from engine.sched.modes import modes_of, prompt_share
from engine.sched.policy import Limits
from engine.sched.scheduler import Bounds, Scheduler, TurnLog
from engine.sched.scoring import check_scored, score_rows
from engine.sched.session import Handle, Session
from engine.store.prefix import PrefixStore
from engine.types import (
    CacheLayer,
    Event,
    ForwardTrace,
    Generation,
    Likelihood,
    PrefixStatus,
    Projection,
    Prompt,
    Rehearsal,
    Request,
    SamplingParams,
    ScoreBlock,
    check_counts,
)

Progress = Callable[[str, int, int | None], None]
T = TypeVar("T")
# Between the token ids of a rehearsal, so that they differ.
STRIDE = 7919


def load(model: str | Any, *, progress: Progress | None = None, **config: Any) -> Engine:
    """Load `model` (a folder, a built-in name or a hub id). `config`: the fields of `EngineConfig`; a lever that is
    left out has this machine's default (`engine.levers`).

    progress(label, done, total) is called while something is fetched or converted. Raises the typed errors of
    `engine.errors`; nothing is left half-written.
    """
    defaults = machine_defaults(lambda: backend.machine().key)
    asked = EngineConfig.from_dict({"model": str(model), **defaults, **config})
    return Engine(asked, defaults.keys() - config.keys(), progress=progress)


class Engine:
    """A loaded model and the thread that runs it. Close it, or use it as a context manager.

    left_out: levers that nobody asked for: where a model cannot have this machine's default, the general one holds.
    """

    def __init__(
        self, config: EngineConfig, left_out: Set[str] = frozenset(), *, progress: Progress | None = None
    ) -> None:
        request = parse_kv(config.kv)
        folder = resolve_model(config.model, progress=progress)
        backend.blas()
        self._loop, self._old_wired = Loop(manual=config.drive == "manual"), None
        self._prefixes: PrefixStore | None = None
        try:
            how = (config.dtype, config.profile, config.recurrence, config.fuse)
            self._model: Model = self._loop.call(lambda: load_model(folder, *how))
            self._kv = KVPlan.build(request, self._model.spec.caches)
            self.tokenizer: Tokenizer | None = load_tokenizer(folder) if has_tokenizer(folder) else None
            self._old_wired = self._loop.call(backend.raise_wired_limit)
            self.machine = backend.machine()
            resolved = config.resolve(dtype=self._model.dtype)
            budgets = {name: vars(config)[name] for name in ("kv_budget", "memory_budget")}
            what = (self._model.spec, self._kv, self._model.profile.family, budgets, bool(config.prefix_cache))
            self._modes = modes_of(config.batch_mode, self.machine.device, self.machine.blas, *what)
            self.config = fitting(resolved, left_out, self.machine, self._model.decoder, self._kv, self._modes[1])
            self._scheduler = self._make_scheduler()
        except BaseException:
            self.close()
            raise
        self._ids = itertools.count(1)
        self._loop.drive(self._scheduler)

    def _make_scheduler(self) -> Scheduler:
        """How requests are planned and run."""
        config, device = self.config, self.machine.device
        mode, rows = self._modes
        if mode == "fast":
            flatten(self._model.decoder)
        self._early = device == "cpu" and config.ops == "lean"  # layers of a step start as they are built
        self._projector = self._loop.call(self._make_projector)
        self._admission = Admission(
            model=self._model,
            tokenizer=self.tokenizer,
            kv=self._kv,
            projector=self._projector,
            config=config,
            machine=self.machine,
            mode=mode,
            rows=rows,
            call=self._loop.call,
        )
        if config.ops == "lean":
            if unfit := unfit_for_lean(device, self.machine.arch):
                raise InvalidValue("ops", "lean", f"mlx: {unfit}")
            lean(self._model.decoder, device)
        tried = self.machine.blas != "bundled"
        self._compiled = CompiledStep(self._model.decoder, tried=tried) if config.compile == "step" else None
        if config.argmax == "normalised" and (unfit := unfit_for_normalised(device)):
            raise InvalidValue("argmax", "normalised", f"full: {unfit}")
        kept = config.prefix_cache
        self._prefixes = PrefixStore(self._kv, chunk=config.prefill_chunk, capacity=kept) if kept else None
        module, symbol = METHODS["decode"].split(":")
        method: Method = getattr(importlib.import_module(module), symbol)(
            self._model.decoder,
            self._kv,
            chunk=config.prefill_chunk,
            rows=rows,
            compiled=self._compiled,
            normalised=config.argmax == "normalised",
            early=self._early,
            prefixes=self._prefixes,
        )
        share = prompt_share(mode, device, self.machine.blas, self.parameters, config.prefill_chunk)
        share = sys.maxsize if method.staged else share if method.joint else 0
        budget = kv_limit(config, self.weights_bytes, self._beside)
        limits = Limits(rows=config.batch, kv_bytes=budget, prefill=share, staged=method.staged)
        return Scheduler(method, limits, Bounds(waiting=config.queue, idle_s=config.idle_s))

    # -- what is loaded ------------------------------------------------------------------------------------------

    @property
    def model_config(self) -> Mapping[str, Any]:
        """The model's config.json, with generation_config.json's eos_token_id."""
        return self._model.config

    @property
    def profile(self) -> Profile:
        """Which profile read the folder: exact, family or universal."""
        return self._model.profile

    @property
    def weights_bytes(self) -> int:
        """Bytes of all parameters as held in memory, scales and biases included."""
        return self._model.weights_bytes

    @property
    def model_sha256(self) -> str:
        """Of the weights."""
        return self._model.sha256

    @property
    def parameters(self) -> int:
        """Values before packing; weights_bytes * 8 / parameters is the effective bits per weight."""
        return self._model.parameters

    @property
    def compiled(self) -> Counts | None:
        """How many decode steps ran compiled so far, over how many traces; None without compile="step"."""
        return None if self._compiled is None else replace(self._compiled.counts)

    # -- teacher forcing -----------------------------------------------------------------------------------------

    def logits(self, token_ids: Sequence[int], chunk: int | None = None, head: int = 0, tail: int = 1) -> mx.array:
        """Logits [L, V] after every token, over a fresh cache: see `trace`."""
        logits: mx.array = self.trace(token_ids, chunk=chunk, head=head, tail=tail).logits
        return logits

    def trace(
        self,
        token_ids: Sequence[int],
        chunk: int | None = None,
        head: int = 0,
        tail: int = 1,
        *,
        layers: bool = False,
        lens: int = 0,
        prefix: int = 0,
        sizes: Sequence[int] | None = None,
    ) -> ForwardTrace:
        """Run `token_ids` over a fresh cache: the first `head` in a forward of their own, then chunks of `chunk`
        (default: the config's), the last `tail` one at a time. Caches are converted after each forward as in
        generation. With `layers`, the residual stream after each layer comes too; with `lens`, the logits that the
        final norm and the head make of it at so many last positions. `sizes`: the lengths of the forwards, one by one,
        instead of head, chunk and tail.

        prefix: so many tokens are filled first; their caches are kept in a file, read back into fresh ones, and the
        run goes on from these. `InvalidValue` where `engine.kv.publish` allows no such boundary.
        """
        ids = self._admission.checked_ids(token_ids)
        if sizes is not None and (chunk is not None or head or tail != 1 or prefix):
            raise InvalidValue("sizes", tuple(sizes), "alone: without chunk, head, tail and prefix")
        step = self.config.prefill_chunk if chunk is None else chunk
        forwards = None if sizes is None else tuple(sizes)
        cut = Cut(length=len(ids), chunk=step, head=head, tail=tail, prefix=prefix, sizes=forwards)
        return self._loop.call(lambda: forced_trace(self._model, self._kv, ids, cut, layers=layers, lens=lens))

    def score(
        self, sequences: Sequence[Sequence[int]], tail: int = 32, batch: int = 1, prefix: int = 0
    ) -> Iterator[ScoreBlock]:
        """Teacher-forced logits of the last `tail` positions of each sequence, one block a sequence, on the path that
        is served: `batch` sequences at a time are rows beside each other, prefilled up to the tail, whose tokens are
        then fed one by one. prefix: so many tokens of each row come out of the prefix cache, which must be on."""
        checked, config = [self._admission.checked_ids(ids) for ids in sequences], self.config
        check_scored(checked, tail=tail, batch=batch, rows=config.batch, prefix=prefix, chunk=config.prefill_chunk)
        return score_rows(self.submit, checked, tail=tail, batch=batch, prefix=prefix)

    def likelihoods(
        self, context: Sequence[int], continuations: Sequence[Sequence[int]], batch: int = 8
    ) -> tuple[Likelihood, ...]:
        """How likely each continuation of `context` is. The context is prefilled once, as in generation, its last token
        apart; behind it up to `batch` continuations share a forward, the shorter ones padded at their end, which no
        token before that sees."""
        ids = self._admission.checked_ids(context)
        asked = [self._admission.checked_ids(each) for each in continuations]
        check_counts({"batch": (batch, 1)})
        lengths = prefill_lengths(len(ids) - 1, self.config.prefill_chunk)
        return self._loop.call(lambda: continue_context(self._model.decoder, self._kv, ids, asked, lengths, batch))

    def run_graph(self, work: Callable[[Callable[[], GraphRun]], T]) -> T:
        """Run `work(fresh)` on the engine's thread and return what it returns. `fresh()` is the bare graph over an
        empty cache: call it with token ids [1, L] for their logits. For measuring, without sampling and scheduling."""
        return self._loop.call(lambda: work(lambda: GraphRun.begin(self._model.decoder, self._kv)))

    # -- memory --------------------------------------------------------------------------------------------------

    def project(self, prompt_tokens: int, max_tokens: int) -> Projection:
        """What the caches of a request will hold at its end, exactly and without running anything.

        max_tokens 0: as prefill leaves them, before the last of `prompt_tokens` is fed.
        """
        check_counts({"prompt_tokens": (prompt_tokens, 1), "max_tokens": (max_tokens, 0)})
        lengths = (*prefill_lengths(prompt_tokens - 1, self.config.prefill_chunk), *(1,) * max_tokens)
        caches, peak = self._loop.call(lambda: (self._projector.caches(lengths), self._projector.peak_bytes(lengths)))
        layers = tuple(cache.describe(i) for i, cache in enumerate(caches))
        kv_bytes = sum(layer.kv_bytes for layer in layers)
        return Projection(prompt_tokens, max_tokens, self.config.prefill_chunk, kv_bytes, peak, layers)

    def rehearse(self, held_tokens: int, prompt_tokens: int, max_tokens: int) -> Rehearsal:
        """Peak bytes of all that MLX holds, weights included, while a request runs over caches that hold
        `held_tokens` others already, in chunks as the config says: the end of a long request without its beginning.

        max_tokens 0: prefill only, which runs all but the last of `prompt_tokens`.
        """
        check_counts(
            {"held_tokens": (held_tokens, 0), "prompt_tokens": (prompt_tokens, 1), "max_tokens": (max_tokens, 0)}
        )
        chunk, vocab = self.config.prefill_chunk, self._model.spec.vocab

        def run() -> Rehearsal:
            processors, sampler = self._admission.operations(SamplingParams())
            prompt = tuple(i * STRIDE % vocab for i in range(prompt_tokens))
            task = Task(prompt=prompt, limit=max_tokens, seed=0, processors=processors, sampler=sampler)
            held = self._projector.caches(prefill_lengths(held_tokens, chunk))
            return rehearse(self._model.decoder, self._kv, task, chunk, held, early=self._early)

        return self._loop.call(run)

    def _make_projector(self) -> Projector:
        decoder = self._model.decoder  # not self: the model would wait for the garbage collector

        def run(tokens: int, caches: list[LayerCache]) -> None:
            decoder.forward_hidden(mx.zeros((1, tokens), mx.int32), caches)

        return Projector(self._kv, run)

    # -- generation ----------------------------------------------------------------------------------------------

    def generate(self, prompt: Prompt, sampling: SamplingParams | None = None, **fields: Any) -> Generation:
        """Run one request to its end. `fields`: the other fields of `Request`."""
        return self.submit(_request(prompt, sampling, {"delivery": "collect", **fields})).result()

    def stream(self, prompt: Prompt, sampling: SamplingParams | None = None, **fields: Any) -> Iterator[Event]:
        """The events of one request. Closing the iterator early cancels it."""
        handle = self.submit(_request(prompt, sampling, fields))
        try:
            yield from handle.events()
        finally:
            handle.cancel()

    async def astream(
        self, prompt: Prompt, sampling: SamplingParams | None = None, **fields: Any
    ) -> AsyncIterator[Event]:
        """`stream` for an event loop. Closing the iterator early cancels it."""
        handle = self.submit(_request(prompt, sampling, fields))
        try:
            async for event in handle.aevents():
                yield event
        finally:
            handle.cancel()

    def submit(self, request: Request) -> Handle:
        """Plan and queue a request; what cannot be honoured raises here, as does a queue that is full. From any
        thread."""
        asked: object = request
        if not isinstance(asked, Request):
            raise InvalidValue("request", asked, "Request(prompt=...)")
        handle = Handle(
            next(self._ids),
            drive=self._loop.step if self._loop.manual else None,
            wake=self._loop.wake,
            room=self.config.room,
            collect=request.delivery == "collect",
        )
        handle.move("preparing")
        session = Session(self._admission.prepare(request), handle)
        self._loop.submit(lambda: self._scheduler.submit(session))
        return handle

    def step(self) -> bool:
        """Manual drive only: one turn (a chunk of a prompt, a token of every row that is ready). False when idle."""
        return self._loop.step()

    def trace_turns(self, receive: Callable[[TurnLog], None] | None) -> None:
        """Have every turn of the scheduler told to `receive`, on the engine's thread; None ends that."""
        self._scheduler.trace = receive

    def describe_caches(self, handle: Handle) -> tuple[CacheLayer, ...]:
        """The live caches of a request, per layer, read from the arrays that are there now."""
        return self._loop.call(lambda: handle.caches())

    def prefix_status(self) -> PrefixStatus | None:
        """What the prefix cache holds and what it was good for so far; None without one."""
        return None if self._prefixes is None else self._loop.call(self._prefixes.status)

    def forget_prefixes(self) -> None:
        """Let go of all that the prefix cache holds, so that the next prompt is a cold one."""
        if self._prefixes is not None:
            self._loop.call(self._prefixes.clear)

    def live_levers(self) -> dict[str, str]:
        """Each lever as it is now: see `engine.method.live`."""
        return live_levers(self.config, self.machine, self._model.decoder, self._compiled)

    def close(self) -> None:
        """Stop the thread and let kept prefixes go; weights go with this object. Unfinished requests end with
        `EngineClosed`. Safe to call twice."""
        self._loop.close()
        if self._prefixes is not None:
            self._prefixes.clear()
        old, self._old_wired = self._old_wired, None
        backend.restore_wired_limit(old)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _beside(self) -> int:
        """Bytes of the weights, and of what a chunk takes while it runs."""
        chunk = self.config.prefill_chunk
        return self.rehearse(0, chunk + 1, 1).peak_bytes - self._projector.nbytes((chunk, 1))


def _request(prompt: Prompt, sampling: SamplingParams | None, fields: Mapping[str, Any]) -> Request:
    known = [name for name in Request.__dataclass_fields__ if name not in ("prompt", "sampling")]
    for name in fields:
        if name not in known:
            raise UnknownField("Request", name, known)
    return Request(prompt=prompt, sampling=sampling or SamplingParams(), **fields)
