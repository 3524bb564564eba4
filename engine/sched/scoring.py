"""Teacher forcing on the path that is served: sequences as rows beside each other, forced behind their prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.errors import InvalidValue
from engine.sched.session import Handle
from engine.types import Request, SamplingParams, ScoreBlock, check_counts

Ids = tuple[int, ...]
Submit = Callable[[Request], Handle]


def check_scored(sequences: Sequence[Ids], *, tail: int, batch: int, rows: int, prefix: int, chunk: int) -> None:
    """Raise `InvalidValue` unless an engine of so many rows and this prefill chunk can score these."""
    check_counts({"tail": (tail, 1), "batch": (batch, 1), "prefix": (prefix, 0)})
    if batch > rows:
        raise InvalidValue("batch", batch, f"1..{rows} (the engine's own batch)")
    short = [len(ids) for ids in sequences if len(ids) < tail]
    if short:
        raise InvalidValue("tail", tail, f"1..{min(short)} (the shortest sequence)")
    for filled in {len(ids) - tail for ids in sequences} if prefix % chunk else ():
        if prefix != filled:
            raise InvalidValue("prefix", prefix, f"a multiple of {chunk}, the chunk, or {filled}: all before the tail")
    if any(prefix > len(ids) - tail for ids in sequences):
        raise InvalidValue("prefix", prefix, f"0..{min(map(len, sequences)) - tail} tokens, before every tail")


def score_rows(submit: Submit, sequences: Sequence[Ids], *, tail: int, batch: int, prefix: int) -> Iterator[ScoreBlock]:
    """One block a sequence, `batch` rows at a time. prefix: tokens of each that are computed and kept beforehand, so
    that its row finds them; one that does not is `InvalidValue`, for there was no room for them."""
    for start in range(0, len(sequences), batch):
        group = sequences[start : start + batch]
        for ids in group if prefix else ():
            submit(_forced((*ids[:prefix], ids[0]), (ids[0],))).result()
        handles = [
            # The token behind the last position is fed to nobody.
            submit(_forced(ids[: len(ids) - tail + 1], (*ids[len(ids) - tail + 1 :], ids[0]), taps=("logits",)))
            for ids in group
        ]
        try:
            for index, handle in enumerate(handles, start):
                done, length = handle.result(), len(sequences[index])
                if done.usage.cached_tokens < prefix:
                    kept = f"{done.plan.prefix_cache} bytes, which held {done.usage.cached_tokens} of {prefix} tokens"
                    raise InvalidValue("prefix_cache", kept, f"room for the prefixes of {len(group)} rows")
                yield ScoreBlock(
                    index,
                    tuple(range(length - tail, length)),
                    done.taps["logits"],
                    done.kv_live,
                    done.caches,
                    done.kv_status,
                    done.usage.cached_tokens,
                )
        finally:  # of those that nobody waited for
            for handle in handles:
                handle.cancel()


def _forced(prompt: Ids, forced: Ids, taps: tuple[str, ...] = ()) -> Request:
    return Request(prompt=prompt, sampling=SamplingParams(), forced_tokens=forced, taps=taps, delivery="collect")
