"""The data of the public door: requests in, events and results out. Pure Python, no MLX.

Invariants are checked in `__post_init__`, so that a bad value is an error where it is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from engine.errors import InvalidValue, UnknownField

FinishReason = Literal["stop", "length", "cancelled"]
Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Messages

TAPS = ("logits", "logprobs")
PROMPTS = "a string, a sequence of token ids, or a sequence of messages"


def _number(name: str, value: object, low: float, high: float, allowed: str, *, integer: bool = False) -> None:
    kinds: tuple[type, ...] = (int,) if integer else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not (low <= value <= high):  # type: ignore[operator]
        raise InvalidValue(name, value, allowed)


@runtime_checkable
class _Array(Protocol):
    """An array of MLX, NumPy or another library."""

    def tolist(self) -> object: ...


def listed(name: str, value: object, allowed: str) -> tuple[Any, ...]:
    """The items of a list, tuple or other sequence, or of an array of one dimension. Raises `InvalidValue`."""
    items = value.tolist() if isinstance(value, _Array) else value
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes, bytearray)):
        raise InvalidValue(name, value, allowed)
    return tuple(items)


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request samples. Defaults are greedy decoding, as in mlx-lm.

    Filters run in mlx-lm's order: top_p, min_p, xtc, top_k, then categorical(logprobs / temperature).
    Penalties look back over the last `*_context_size` tokens, the prompt included.
    `top_logprobs`: None for none, 0 for the chosen token only, k for the k best as well.
    `sampler`: how filtered log-probabilities become what is drawn from: "categorical", divided by the temperature as in
    mlx-lm, or another of the table of levers ("hlg:width=1,shoulder=2,toe=8,offset=2", see `engine.sample.hlg`).
    """

    max_tokens: int = 256
    temperature: float = 0.0
    sampler: str = "categorical"
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_p: float = 0.0
    top_k: int = 0
    min_p: float = 0.0
    min_tokens_to_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 0.0
    repetition_context_size: int = 20
    presence_penalty: float = 0.0
    presence_context_size: int = 20
    frequency_penalty: float = 0.0
    frequency_context_size: int = 20
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        given: object = self.stop
        stop = (given,) if isinstance(given, str) else listed("stop", given, "a string, or a sequence of strings")
        if any(not isinstance(s, str) or not s for s in stop):
            raise InvalidValue("stop", self.stop, "non-empty strings")
        object.__setattr__(self, "stop", stop)
        inf, flag = math.inf, self.ignore_eos
        if flag is not True and flag is not False:
            raise InvalidValue("ignore_eos", flag, (True, False))
        bias: object = self.logit_bias
        if not isinstance(bias, Mapping):
            raise InvalidValue("logit_bias", bias, "a mapping of token ids to numbers")
        _number("max_tokens", self.max_tokens, 1, inf, "an integer >= 1", integer=True)
        _number("temperature", self.temperature, 0, 1e6, "a finite number >= 0")
        if 0 < self.temperature < 1e-30:
            raise InvalidValue("temperature", self.temperature, "0, or >= 1e-30 (its inverse must fit float32)")
        if not isinstance(self.sampler, str):
            raise InvalidValue("sampler", self.sampler, "the name of a sampler, for instance categorical")
        if self.seed is not None:
            _number("seed", self.seed, 0, 2**64 - 1, "None or an integer in [0, 2**64)", integer=True)
        _number("top_p", self.top_p, 0, 1, "a number in [0, 1]; 0 and 1 switch it off")
        _number("min_p", self.min_p, 0, 1, "a number in [0, 1]; 0 switches it off")
        _number("top_k", self.top_k, 0, inf, "an integer >= 0; 0 switches it off", integer=True)
        _number("min_tokens_to_keep", self.min_tokens_to_keep, 1, inf, "an integer >= 1", integer=True)
        _number("xtc_probability", self.xtc_probability, 0, 1, "a number in [0, 1]")
        _number("xtc_threshold", self.xtc_threshold, 0, 0.5, "a number in [0, 0.5]")
        _number("repetition_penalty", self.repetition_penalty, 0, 1e6, "a finite number >= 0; 0 switches it off")
        for name in ("presence_penalty", "frequency_penalty"):
            _number(name, getattr(self, name), -1e6, 1e6, "a finite number; 0 switches it off")
        for name in ("repetition_context_size", "presence_context_size", "frequency_context_size"):
            _number(name, getattr(self, name), 1, inf, "an integer >= 1", integer=True)
        if self.top_logprobs is not None:
            _number("top_logprobs", self.top_logprobs, 0, inf, "None or an integer >= 0", integer=True)
        for token, by in bias.items():
            _number("logit_bias token id", token, 0, inf, "an integer >= 0", integer=True)
            _number("logit_bias value", by, -1e9, 1e9, "a finite number")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Build from a mapping; an unknown key raises `UnknownField` and lists the known ones."""
        unknown = [k for k in values if k not in cls.__dataclass_fields__]
        if unknown:
            raise UnknownField("SamplingParams", unknown[0], cls.__dataclass_fields__)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One generation.

    `forced_tokens`: fed instead of what was sampled (teacher forcing); the run ends after the last one.
    `taps`: full-vocabulary arrays to keep per generated token, from `TAPS`.
    `tools`, `template_kwargs`: handed to the chat template; only meaningful with messages.
    `delivery`: "stream" for events, of which a bounded number waits for the reader; "collect" for the result alone.
    `priority`: higher ones begin first. `deadline_s`: seconds from submission after which it ends with an error.
    """

    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    forced_tokens: tuple[int, ...] | None = None
    taps: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    delivery: Literal["stream", "collect"] = "stream"
    priority: int = 0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.delivery not in ("stream", "collect"):
            raise InvalidValue("delivery", self.delivery, ("stream", "collect"))
        _number("priority", self.priority, -(2**31), 2**31, "an integer", integer=True)
        if self.deadline_s is not None:
            _number("deadline_s", self.deadline_s, 0, math.inf, "None or a number of seconds >= 0")
        sampling: object = self.sampling
        if not isinstance(sampling, SamplingParams):
            raise InvalidValue("sampling", sampling, "SamplingParams(...)")
        for tap in listed("taps", self.taps, f"a sequence of {', '.join(TAPS)}"):
            if tap not in TAPS:
                raise InvalidValue("taps", tap, TAPS)
        if self.forced_tokens is not None:
            forced = listed("forced_tokens", self.forced_tokens, "None or a sequence of token ids")
            if not forced:
                raise InvalidValue("forced_tokens", forced, "None or at least one token id")
            object.__setattr__(self, "forced_tokens", forced)
        if not isinstance(self.prompt, str):
            items = listed("prompt", self.prompt, PROMPTS)
            if isinstance(self.prompt, _Array):
                object.__setattr__(self, "prompt", items)
        is_messages = not isinstance(self.prompt, str) and len(self.prompt) > 0 and isinstance(self.prompt[0], Mapping)
        if not is_messages and (self.tools is not None or self.template_kwargs):
            raise InvalidValue("tools/template_kwargs", "given", "only together with a list of messages")


@dataclass(frozen=True)
class TokenLogprob:
    """`logprob` of the emitted token in nats; `top` holds (token id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Usage:
    """cached_tokens: of the prompt's, those that came out of a kept prefix."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True)
class Timing:
    """Wall clock of one request. `ttft_ms` is submission to first token, queueing included; `prefill_tok_s` counts the
    tokens that were computed."""

    ttft_ms: float
    prefill_ms: float
    decode_ms: float
    prefill_tok_s: float
    decode_tok_s: float
    peak_bytes: int


@dataclass(frozen=True)
class CacheLayer:
    """What one layer's cache really is, read from the live object. Bytes include allocation slack.

    scheme: how keys and values are stored; layout: which tokens are, "full", "rotating:<size>", "chunked:<size>", or
    "state:<arrays>" for a recurrent state. bits: of keys, value_bits: of values; None where they are kept as they are.
    """

    layer: int
    scheme: str
    offset: int
    dtype: str
    bits: int | None
    value_bits: int | None
    group_size: int | None
    kv_bytes: int
    layout: str = "full"


@dataclass(frozen=True)
class Projection:
    """What a request's caches will hold when it ends with its last token, slack included.

    `per_layer` is what `Engine.describe_caches` will find then. peak_kv_bytes: the most that they take on the way,
    while one of them grows or is converted.
    """

    prompt_tokens: int
    max_tokens: int
    prefill_chunk: int
    kv_bytes: int
    peak_kv_bytes: int
    per_layer: tuple[CacheLayer, ...]


@dataclass(frozen=True)
class Rehearsal:
    """peak_bytes: the most that MLX held at once, weights included; kv_bytes: of the caches at the end."""

    peak_bytes: int
    kv_bytes: int


@dataclass(frozen=True, kw_only=True)
class PrefixStatus:
    """What is kept of prompts, and what it was good for so far.

    boundaries: ends of chunks that are kept. hits: requests that found one of them; cached_tokens: of their
    prompt_tokens, how many they did not compute. evicted: boundaries that had to go; not_kept: why -> how many never
    came in.
    """

    capacity_bytes: int
    held_bytes: int
    boundaries: int
    requests: int
    hits: int
    prompt_tokens: int
    cached_tokens: int
    evicted: int
    not_kept: Mapping[str, int]

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were not computed."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True)
class Plan:
    """Everything that was decided for a request before anything was allocated.

    `batch`: rows that may run beside it, itself included; `batch_mode`: what its bits may depend on; `rows`: whether
    rows share a forward, with caches of their own ("together"), in one buffer ("padded") or as in mlx-lm's batch
    ("batched"; "alone or batched" where a lone row is none), or each has its own forward ("one by one"). `kv_bytes`:
    what its caches will hold at their largest, slack included. `prefix_cache`: bytes of
    other prompts' prefixes that it may find, 0 for none.
    """

    model: str
    model_sha256: str
    dtype: str
    kv: str
    kv_layers: tuple[str, ...]
    method: str
    prefill_chunk: int
    max_tokens: int
    seed: int
    blas: str
    machine: str
    recurrence: str = "fast"
    fuse: str = "none"
    compile: str = "none"
    argmax: str = "full"
    ops: str = "mlx"
    batch: int = 1
    batch_mode: str = "composition"
    rows: str = "together"
    kv_bytes: int = 0
    prefix_cache: int = 0
    sampler: str = "categorical"


@dataclass(frozen=True)
class Event:
    """A piece of a running generation. `text` is final: it can no longer become part of a stop string."""

    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Generation:
    """A finished request.

    `tokens` includes the stop token; `text` is the tokenizer's decode without it, cut before the first stop string.
    `taps[name]`: array [N, V] in the logits' dtype, one row per generated token; `kv_live`, with taps: the KV scheme
    that each token's forward attended, read from the live caches just before it ran.
    `caches`: the live caches at the end; `kv_status` says whether the asked scheme was really on
    (for instance "native (start not reached)").
    """

    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...]
    usage: Usage
    timing: Timing
    plan: Plan
    kv_status: str
    caches: tuple[CacheLayer, ...]
    taps: Mapping[str, Any] = field(default_factory=dict)
    kv_live: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForwardTrace:
    """A teacher-forced run over a fresh cache.

    `logits`: array [L, V]. `kv_live[j]`: the scheme that the forward of position j attended, read from the live caches
    just before it ran: "native", "affine8:g64", or "mixed" where layers differ. `layers`: "layer.<i>" -> array [L, D],
    the residual stream after layer i, "layer.-1" the embedding; `lens`: "lens.<i>" -> logits [N, V] that the final norm
    and the head make of it at the last N positions; both empty unless asked for.
    """

    logits: Any
    kv_live: tuple[str, ...]
    kv_status: str
    caches: tuple[CacheLayer, ...]
    layers: Mapping[str, Any] = field(default_factory=dict)
    lens: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Likelihood:
    """Of one continuation of a context.

    logprobs: of each of its tokens, in nats, from logits in float32; greedy: whether each was the most likely one.
    """

    logprobs: tuple[float, ...]
    greedy: bool

    @property
    def nats(self) -> float:
        """Their sum."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True)
class ScoreBlock:
    """Teacher-forced logits of one sequence.

    `logits`: array [T, V]; row j is the prediction after token `positions[j]` of the sequence.
    `kv_live[j]`: the scheme that the forward of row j attended, read from the live caches just before it ran.
    `caches`, `kv_status`: as in `Generation`. `cached_tokens`: how many came out of a kept prefix.
    """

    sequence: int
    positions: tuple[int, ...]
    logits: Any
    kv_live: tuple[str, ...]
    caches: tuple[CacheLayer, ...]
    kv_status: str
    cached_tokens: int = 0


def check_counts(counts: Mapping[str, tuple[object, int]]) -> None:
    """`InvalidValue` for a count that is no integer, or below the least that is given with it."""
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidValue(name, value, f"an integer >= {least}")
