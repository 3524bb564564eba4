"""From a request to what runs it: prompt to token ids, sampling to operations, limits to bytes, all checked before
anything is allocated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

from engine.artifacts.tokenizer import Tokenizer
from engine.backend import Machine
from engine.config import EngineConfig
from engine.errors import EmptyPrompt, InvalidValue, TemplateMissing
from engine.graph.model import Model
from engine.kv.plan import KVPlan
from engine.kv.project import Projector, prefill_lengths
from engine.method.base import Task
from engine.method.text import TextStream
from engine.sample.processors import Processors, build_processors
from engine.sample.samplers import Sampler, build_sampler
from engine.sched.session import Prepared
from engine.types import Messages, Plan, Request, SamplingParams, listed

Operations = tuple[Processors, Sampler]


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What requests are planned with. `config` is resolved; `mode`, `rows`: see `engine.sched.modes`.

    call: runs a function on the engine's thread, where arrays are made.
    """

    model: Model
    tokenizer: Tokenizer | None
    kv: KVPlan
    projector: Projector
    config: EngineConfig
    machine: Machine
    mode: str
    rows: str
    call: Callable[[Callable[[], Any]], Any]

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a generation: config.json's and the tokenizer's."""
        eos = self.model.config.get("eos_token_id")
        ids = {eos} if isinstance(eos, int) else set(eos or ())
        return frozenset(ids | (self.tokenizer.eos_ids if self.tokenizer else set()))

    def checked_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Token ids of the model's vocabulary, at least one. Raises `EmptyPrompt`, `InvalidValue`."""
        ids = listed("token ids", token_ids, "a sequence of integers")
        if not ids:
            raise EmptyPrompt
        vocab = self.model.spec.vocab
        for token in ids:
            # NumPy's integers are Integral; so is True, which is no token.
            if isinstance(token, bool) or not isinstance(token, Integral) or not 0 <= int(token) < vocab:
                raise InvalidValue("token id", token, f"an integer in 0..{vocab - 1} (the model's vocabulary)")
        return tuple(map(int, ids))

    def encode(self, request: Request) -> tuple[int, ...]:
        """The prompt's token ids; ids are taken as they are. Raises also `TemplateMissing`."""
        prompt = request.prompt
        if not prompt:
            raise EmptyPrompt
        if not isinstance(prompt, str) and not isinstance(prompt[0], Mapping):
            return self.checked_ids(cast(Sequence[int], prompt))
        if self.tokenizer is None:
            raise InvalidValue("prompt", type(prompt).__name__, "token ids: this model folder has no tokenizer")
        if isinstance(prompt, str):
            return self.checked_ids(self.tokenizer.encode_prompt(prompt))
        if not self.tokenizer.has_template:
            raise TemplateMissing(self.config.model)
        ids = self.tokenizer.apply_chat_template(cast(Messages, prompt), tools=request.tools, **request.template_kwargs)
        return self.checked_ids(ids)

    def operations(self, sampling: SamplingParams) -> Operations:
        """What turns logits into tokens; raises for values that this vocabulary cannot honour."""
        vocab = self.model.spec.vocab
        if sampling.top_logprobs is not None and sampling.top_logprobs > vocab:
            raise InvalidValue("top_logprobs", sampling.top_logprobs, f"0..{vocab} (the model's vocabulary)")
        # mlx-lm's commands keep XTC away from a newline's tokens and from EOS (generate.py).
        newline = self.tokenizer.encode("\n", add_special_tokens=True) if self.tokenizer else ()
        spared = (*newline, *sorted(self.stop_ids))
        return build_processors(sampling, vocab), build_sampler(sampling, vocab, xtc_special_tokens=spared)

    def prepare(self, request: Request) -> Prepared:
        """Plan a request. Raises what cannot be honoured."""
        sampling, config = request.sampling, self.config
        if sampling.stop and self.tokenizer is None:
            raise InvalidValue("stop", sampling.stop, "() for a model folder without a tokenizer")
        prompt = self.encode(request)
        forced = None if request.forced_tokens is None else self.checked_ids(request.forced_tokens)
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        limit = sampling.max_tokens if forced is None else len(forced)
        stop_ids, text = self.stop_ids, None
        if self.tokenizer is not None:
            text = TextStream(self.tokenizer.decode, stop_ids, sampling.stop, self.tokenizer.byte_ids)
        if sampling.logit_bias or sampling.xtc_probability:  # these hold arrays of their own
            processors, sampler = self.call(lambda: self.operations(sampling))
        else:
            processors, sampler = self.operations(sampling)
        chunks = prefill_lengths(len(prompt) - 1, config.prefill_chunk)
        task = Task(
            prompt=prompt,
            limit=limit,
            seed=seed,
            processors=processors,
            sampler=sampler,
            forced=forced,
            top_logprobs=sampling.top_logprobs,
            taps=request.taps,
        )
        plan = Plan(
            model=config.model,
            model_sha256=self.model.sha256,
            dtype=config.dtype,
            kv=str(self.kv.request),
            kv_layers=self.kv.describe(),
            method="decode",
            prefill_chunk=config.prefill_chunk,
            max_tokens=limit,
            seed=seed,
            blas=self.machine.blas,
            machine=self.machine.key,
            recurrence=config.recurrence,
            fuse=config.fuse,
            compile=config.compile,
            argmax=config.argmax,
            ops=config.ops,
            batch=config.batch,
            batch_mode=self.mode,
            rows=self.rows,
            kv_bytes=self._kv_bytes(chunks, limit),
            prefix_cache=config.prefix_cache,
            sampler=sampler.names[-1],
        )
        return Prepared(request, task, plan, stop_ids, text, chunks=len(chunks), first_chunk=chunks[0] if chunks else 0)

    def _kv_bytes(self, chunks: tuple[int, ...], tokens: int) -> int:
        if self.projector.counts:
            return self.projector.nbytes(chunks, tokens)
        size: int = self.call(lambda: self.projector.nbytes(chunks, tokens))
        return size


def kv_limit(config: EngineConfig, weights: int, beside: Callable[[], int]) -> int | None:
    """Bytes that all caches together may take, by the budgets; None where none was given.

    weights: their bytes; beside: measures what weights and one chunk take. Raises `InvalidValue` for a memory_budget
    that has no room for them.
    """
    limits = [] if config.kv_budget is None else [config.kv_budget]
    if config.memory_budget is not None:
        taken, what = weights, "the weights alone"
        if taken < config.memory_budget:
            taken, what = beside() + config.prefix_cache, "weights and one chunk"
            what = "weights, one chunk and prefix_cache" if config.prefix_cache else what
        if taken >= config.memory_budget:
            raise InvalidValue("memory_budget", config.memory_budget, f"above {taken}: {what}")
        limits.append(config.memory_budget - taken)
    return min(limits, default=None)
