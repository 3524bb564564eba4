"""How likely several continuations of one context are.

Letters: B continuations of a forward, L tokens of the longest, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.kv.base import LayerCache, Saved
from engine.kv.plan import KVPlan
from engine.types import Likelihood

# A forward of one token has a form of its own in rings and latents, so that bits would follow what shares a forward.
SHORTEST = 2
Ids = tuple[int, ...]


def continue_context(
    decoder: Decoder,
    kv: KVPlan,
    context: Ids,
    continuations: Sequence[Ids],
    lengths: Sequence[int],
    batch: int,
) -> tuple[Likelihood, ...]:
    """`lengths`: of the forwards that take all but the context's last token."""
    caches, start = kv.fresh(), 0
    for length in lengths:
        decoder.forward_hidden(mx.array(context[start : start + length])[None], caches)
        kv.convert(caches)
        mx.eval([array for cache in caches for array in cache.arrays()])
        start += length
    saved = [cache.snapshot() for cache in caches]
    groups = [continuations[at : at + batch] for at in range(0, len(continuations), batch)]
    return tuple(each for group in groups for each in _forward(decoder, caches, saved, context[-1], group))


def _forward(
    decoder: Decoder, caches: list[LayerCache], saved: Sequence[Saved], last: int, asked: Sequence[Ids]
) -> list[Likelihood]:
    """`asked` behind a context whose last token `last` is not in the caches yet; these stay as they are."""
    rows = [_rows(cache, each, len(asked)) for cache, each in zip(caches, saved, strict=True)]
    longest = max(SHORTEST, *map(len, asked))
    fed = [(last, *ids[:-1], *(0,) * (longest - len(ids))) for ids in asked]
    hidden = decoder.forward_hidden(mx.array(fed), rows)  # [B, L, D]
    scored = []
    for b, ids in enumerate(asked):
        logits = decoder.project(hidden[b, : len(ids)]).astype(mx.float32)  # [tokens, V]
        wanted = mx.array(ids)[:, None]
        logprobs = mx.take_along_axis(logits, wanted, axis=-1).squeeze(-1) - mx.logsumexp(logits, axis=-1)
        greedy = mx.all(mx.argmax(logits, axis=-1) == wanted.squeeze(-1))
        mx.eval(logprobs, greedy)
        scored.append(Likelihood(tuple(logprobs.tolist()), bool(greedy.item())))  # type: ignore[arg-type]
    return scored


def _rows(cache: LayerCache, saved: Saved, count: int) -> LayerCache:
    """A cache of `count` rows that all hold what was saved."""
    first = copy.copy(cache)
    first.restore(saved)
    if count > 1 and first.arrays():
        first.extend([_rows(cache, saved, 1) for _ in range(count - 1)])
    return first
