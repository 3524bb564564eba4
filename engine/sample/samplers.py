"""Samplers: log-probabilities to a token. V: vocabulary.

Filters run in mlx-lm's order (sample_utils.make_sampler): top_p, min_p, xtc, top_k, then a categorical draw of
logprobs / temperature. They see the log-probabilities of temperature 1 and nothing is renormalised in between. A draw
spends keys as mlx-lm spends them: xtc one for its coin, then the categorical one; greedy none.

Each filter is one function of arrays and constants and may run fused (`mx.compile`), in the same units as in mlx-lm.
In place of the division by the temperature `SamplingParams.sampler` may name another way from log-probabilities to the
scores that are drawn from; which there are stands in the table of levers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import mlx.core as mx

from engine import backend
from engine.errors import InvalidValue
from engine.levers import LEVERS
from engine.sample.hlg import NAME as HLG_NAME
from engine.sample.hlg import hlg_scores, parse_hlg
from engine.sample.keys import KeyChain
from engine.types import SamplingParams

# Below this, mlx-lm's product of float16 logprobs and 1 / temperature is -inf for every token, the best one included
# (its logprob is at least -log V, 13 for the largest vocabularies), and the draw is uniform over the vocabulary.
COLDEST_IN_FLOAT16 = 2e-4

Step = Callable[[mx.array, KeyChain], mx.array]
Scores = Callable[[mx.array], mx.array]


def top_p(logprobs: mx.array, mass: float) -> mx.array:
    """Keep the smallest set of best tokens that holds `mass` of the probability, and all that tie with its last."""
    ascending = mx.sort(logprobs, axis=-1)
    probs = mx.exp(ascending.astype(mx.float32))
    better = mx.cumsum(probs, axis=-1, reverse=True, inclusive=False)
    total = better[..., :1] + probs[..., :1]
    dropped = (better >= mass * total).sum(axis=-1, keepdims=True)
    worst_kept = mx.take_along_axis(ascending, dropped, axis=-1)
    return mx.where(logprobs < worst_kept, -float("inf"), logprobs)


def min_p(logprobs: mx.array, ratio: float, keep: int) -> mx.array:
    """Drop tokens less probable than `ratio` times the best, but never the `keep` best."""
    floor = mx.max(logprobs, axis=-1, keepdims=True) + math.log(ratio)
    drop = logprobs < floor
    if keep > 1:
        best = mx.argpartition(logprobs, kth=-keep, axis=-1)[..., -keep:]
        drop = mx.put_along_axis(drop, best, mx.array(False), axis=-1)
    return mx.where(drop, -float("inf"), logprobs)


def xtc(logprobs: mx.array, key: mx.array, droppable: mx.array, probability: float, threshold: float) -> mx.array:
    """With `probability`, drop every token above `threshold` but the least probable of them.

    droppable: bool [V]; False for the special tokens that XTC must leave alone.
    """
    probs = mx.softmax(logprobs, -1)
    least = mx.where(probs > threshold, probs, mx.inf).min(axis=-1, keepdims=True)
    drop = (probs > least) & droppable
    coin = mx.random.uniform(0, 1, key=key)
    return mx.where(coin > probability, logprobs, mx.where(drop, -mx.inf, logprobs))


def top_k(logprobs: mx.array, k: int) -> mx.array:
    """Keep k tokens of the best; which of those that tie at the edge is the partition's choice, as in mlx-lm."""
    drop = mx.argpartition(-logprobs, kth=k - 1, axis=-1)[..., k:]
    return mx.put_along_axis(logprobs, drop, mx.array(-float("inf"), logprobs.dtype), axis=-1)


def tempered(logprobs: mx.array, temperature: float) -> mx.array:
    """logprobs [1, V] over a temperature above 0: scores [1, V], whose softmax is drawn from."""
    if logprobs.dtype == mx.float16 and temperature < COLDEST_IN_FLOAT16:
        logprobs = logprobs.astype(mx.float32)
    return logprobs * (1.0 / temperature)


def categorical(logprobs: mx.array, key: mx.array, temperature: float) -> mx.array:
    """Draw token ids [1] from logprobs [1, V] at a temperature above 0."""
    return mx.random.categorical(tempered(logprobs, temperature), key=key)


def check_sampler(params: SamplingParams) -> str:
    """The registered variant that a request's `sampler` is of. Errors: `InvalidValue` for a name that is not in the
    table of levers and for a sampler beside temperature 0, where nothing is drawn; those of its notation."""
    lever = LEVERS["sampler"]
    variant = lever.variant(params.sampler).name
    if variant != lever.default and params.temperature == 0:
        raise InvalidValue("sampler", params.sampler, f"{lever.default} at temperature 0: greedy draws nothing")
    if variant == HLG_NAME:
        parse_hlg(params.sampler)
    return variant


def drawn_from(params: SamplingParams) -> Scores:
    """From filtered logprobs [..., V] to the scores whose softmax a request draws from; at a temperature above 0.
    Errors: those of `check_sampler`."""
    if check_sampler(params) == HLG_NAME:
        curve = parse_hlg(params.sampler)
        return lambda logprobs: hlg_scores(logprobs, params.temperature, curve)
    return lambda logprobs: tempered(logprobs, params.temperature)


@functools.cache
def _fused(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return mx.compile(function)


class Sampler:
    """The sampler of one request. `greedy` ones spend no key."""

    def __init__(self, steps: tuple[tuple[str, Step], ...], *, greedy: bool) -> None:
        self.names = tuple(name for name, _ in steps)
        self.greedy = greedy
        self._steps = tuple(step for _, step in steps)

    def __call__(self, logprobs: mx.array, keys: KeyChain) -> mx.array:
        """logprobs [1, V] -> token ids [1]."""
        for step in self._steps:
            logprobs = step(logprobs, keys)
        return logprobs

    def filtered(self, logprobs: mx.array) -> mx.array:
        """logprobs [N, V] as the draw sees them, of a sampler whose filters spend no key."""
        keys = KeyChain(0)
        for step in self._steps[:-1]:
            logprobs = step(logprobs, keys)
        return logprobs


def _check(params: SamplingParams, vocab_size: int, xtc_special_tokens: Sequence[int]) -> None:
    if params.top_k >= vocab_size:
        raise InvalidValue("top_k", params.top_k, f"0..{vocab_size - 1} (below the model's vocabulary; 0 is off)")
    if params.min_tokens_to_keep > vocab_size:
        raise InvalidValue("min_tokens_to_keep", params.min_tokens_to_keep, f"1..{vocab_size} (the model's vocabulary)")
    if params.temperature == 0 and params.xtc_probability > 0:
        raise InvalidValue("xtc_probability", params.xtc_probability, "0 at temperature 0: greedy decoding has no XTC")
    for token in xtc_special_tokens if params.xtc_probability > 0 else ():
        if not 0 <= token < vocab_size:
            raise InvalidValue("xtc_special_tokens", token, f"0..{vocab_size - 1} (the model's vocabulary)")


def build_sampler(
    params: SamplingParams,
    vocab_size: int,
    *,
    xtc_special_tokens: Sequence[int] = (),
    fused: bool | None = None,
) -> Sampler:
    """The sampler that `params` ask for, over logprobs [1, vocab_size].

    xtc_special_tokens: never dropped by XTC; mlx-lm's commands pass the encoding of a newline and the EOS ids.
    fused: compile the filters; None does so where it pays, on a GPU. The tokens are the same either way.
    Raises `InvalidValue` for values that this vocabulary or temperature cannot honour.
    """
    _check(params, vocab_size, xtc_special_tokens)
    name = check_sampler(params)
    if params.temperature == 0:
        return Sampler((("greedy", lambda logprobs, _: mx.argmax(logprobs, axis=-1)),), greedy=True)
    if fused is None:
        fused = backend.machine().device != "cpu"

    def ready(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
        return _fused(function) if fused else function

    steps: list[tuple[str, Step]] = []
    if 0 < params.top_p < 1:
        nucleus = ready(top_p)
        steps.append(("top_p", lambda x, _: nucleus(x, params.top_p)))
    if params.min_p:
        above_floor = ready(min_p)
        steps.append(("min_p", lambda x, _: above_floor(x, params.min_p, params.min_tokens_to_keep)))
    if params.xtc_probability > 0:
        exclude, droppable = ready(xtc), mx.ones((vocab_size,), mx.bool_)
        if xtc_special_tokens:
            droppable[mx.array(list(xtc_special_tokens))] = False
        chance, threshold = params.xtc_probability, params.xtc_threshold
        steps.append(("xtc", lambda x, keys: exclude(x, keys.next(), droppable, chance, threshold)))
    if params.top_k:
        best = ready(top_k)
        steps.append(("top_k", lambda x, _: best(x, params.top_k)))
    if name == LEVERS["sampler"].default:
        draw = ready(categorical)
        steps.append((name, lambda x, keys: draw(x, keys.next(), params.temperature)))
    else:
        scores = ready(drawn_from(params))
        steps.append((name, lambda x, keys: mx.random.categorical(scores(x), key=keys.next())))
    return Sampler(tuple(steps), greedy=False)


def sampling_logprobs(logits: mx.array, params: SamplingParams) -> mx.array:
    """The distribution that each row of logits [N, V] would be drawn from: log-probabilities [N, V] in float32.

    Errors: `InvalidValue` for temperature 0 and XTC, which have none that is fixed; those of `build_sampler`.
    """
    for name, allowed in (("temperature", "above 0: nothing is drawn"), ("xtc_probability", "0: XTC tosses a coin")):
        if (params.__dict__[name] == 0) == (name == "temperature"):
            raise InvalidValue(name, params.__dict__[name], allowed)
    x = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    sampler = build_sampler(params, logits.shape[-1], fused=False)
    scores = drawn_from(params)(sampler.filtered(x)).astype(mx.float32)
    return scores - mx.logsumexp(scores, axis=-1, keepdims=True)
