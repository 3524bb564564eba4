"""How one timed sample is taken; the same clock for every stack, read in the stack's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from engine import memory
from oracles.contract import CacheProbe, ForwardProbe

STEP_SEED = 5


class Filled(Protocol):
    """A stack's caches behind a context, and what is done to them. `kv_status`: the live scheme."""

    def twin(self) -> Self: ...

    def convert(self) -> None: ...

    def arrays(self) -> Any: ...

    def kv_status(self) -> str: ...

    def __call__(self, ids: Any) -> Any: ...


FilledT = TypeVar("FilledT", bound=Filled)


def seeded_steps(token_ids: Sequence[int], steps: int) -> list[Any]:
    """Token ids [1, 1] drawn from the prompt's, the same for every stack."""
    import mlx.core as mx

    picks = np.random.Generator(np.random.PCG64(STEP_SEED)).integers(0, len(token_ids), steps)
    return [mx.array([[token_ids[i]]]) for i in picks]


def timed_decode(counts: Iterator[int], max_tokens: int) -> dict[str, Any]:
    """Run one request whose iterator yields how many tokens each step brought, and time it.

    Time to first token runs from the call to the first token, as mlx-lm reports prompt speed; decoding from there to
    token `max_tokens`. The iterator is then drained, outside the clock, so that a lookahead step cannot leak into
    the next sample. Raises RuntimeError when fewer tokens came than asked: such a sample is not comparable.
    """
    import mlx.core as mx

    begin()
    start = time.perf_counter()
    first = last = start
    seen = first_tokens = 0
    for count in counts:
        if count and seen < max_tokens:
            last = time.perf_counter()
            if not seen:
                first, first_tokens = last, count
            seen += count
    mx.synchronize()
    if seen != max_tokens:
        raise RuntimeError(f"the stack generated {seen} tokens instead of {max_tokens}")
    return timed(first - start, last - first, seen - first_tokens)


def timed_forwards(fresh: Callable[[], Callable[[Any], Any]], probe: ForwardProbe) -> dict[str, Any]:
    """Time bare forwards: `fresh()` gives a function over an empty cache, token ids [1, L] -> logits [1, L, V].

    Both durations are means over the repeats. The fed tokens are made and evaluated outside the clock.
    """
    import mlx.core as mx

    prompt = mx.array(list(probe.token_ids))[None]
    fed = seeded_steps(probe.token_ids, probe.steps)
    mx.eval(prompt, fed)
    begin()
    prefill_s = decode_s = 0.0
    for _ in range(probe.repeats):
        forward = fresh()
        start = time.perf_counter()
        mx.eval(forward(prompt))
        middle = time.perf_counter()
        for token in fed:
            mx.eval(forward(token))
        decode_s += time.perf_counter() - middle
        prefill_s += middle - start
    return timed(prefill_s / probe.repeats, decode_s / probe.repeats, probe.steps)


def timed_caches(
    filled: FilledT, fill_s: float, probe: CacheProbe, *, converts: bool
) -> tuple[FilledT, dict[str, Any]]:
    """Time a scheme behind a filled context: its conversion, evaluated before and after, and the steps behind it.

    `filled` stays as it is. `converts`: whether there is anything to convert. Returns the last repeat's caches too.
    """
    import mlx.core as mx

    first, *fed = seeded_steps(probe.token_ids, probe.steps + 1)
    mx.eval(first, fed, filled.arrays())
    begin()
    convert_s = decode_s = 0.0
    begun = ""
    for i in range(probe.conversions):
        run = filled.twin()
        mx.eval(run.arrays())
        start = time.perf_counter()
        run.convert()
        mx.eval(run.arrays())
        convert_s += time.perf_counter() - start
        if i < probe.conversions - probe.repeats:
            continue
        mx.eval(run(first))
        begun = run.kv_status()
        start = time.perf_counter()
        for token in fed:
            mx.eval(run(token))
        decode_s += time.perf_counter() - start
    doc = timed(fill_s, decode_s / probe.repeats, probe.steps)
    return run, doc | {"convert_s": convert_s / probe.conversions if converts else None, "kv_stepped": begun}


def begin() -> None:
    """Nothing pending, nothing cached, a new peak."""
    import mlx.core as mx

    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()


def timed(prefill_s: float, decode_s: float, decode_tokens: int) -> dict[str, Any]:
    now = memory()
    return {
        "prefill_s": prefill_s,
        "ttft_s": prefill_s,
        "decode_s": decode_s,
        "decode_tokens": decode_tokens,
        "peak_bytes": now["peak_bytes"],
        "rss_bytes": now["rss_bytes"],
    }
