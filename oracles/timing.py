"""How one timed sample is taken; the same clock for every stack, read in the stack's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from engine import memory

STEP_SEED = 5


def timed_decode(counts: Iterator[int], max_tokens: int) -> dict[str, Any]:
    """Run one request whose iterator yields how many tokens each step brought, and time it.

    Time to first token runs from the call to the first token, as mlx-lm reports prompt speed; decoding from there to
    token `max_tokens`. The iterator is then drained, outside the clock, so that a lookahead step cannot leak into
    the next sample. Raises RuntimeError when fewer tokens came than asked: such a sample is not comparable.
    """
    import mlx.core as mx

    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
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
    now = memory()
    return {
        "prefill_s": first - start,
        "ttft_s": first - start,
        "decode_s": last - first,
        "decode_tokens": seen - first_tokens,
        "peak_bytes": now["peak_bytes"],
        "rss_bytes": now["rss_bytes"],
    }


def timed_forwards(
    fresh: Callable[[], Callable[[Any], Any]], token_ids: Sequence[int], steps: int, repeats: int
) -> dict[str, Any]:
    """Time bare forwards: `fresh()` gives a function over an empty cache, token ids [1, L] -> logits [1, L, V].

    Both durations are means over `repeats`. The fed tokens are drawn from the prompt's, seeded, and the same for every
    stack; they are made and evaluated outside the clock.
    """
    import mlx.core as mx

    picks = np.random.Generator(np.random.PCG64(STEP_SEED)).integers(0, len(token_ids), steps)
    prompt = mx.array(list(token_ids))[None]
    fed = [mx.array([[token_ids[i]]]) for i in picks]
    mx.eval(prompt, fed)
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    prefill_s = decode_s = 0.0
    for _ in range(repeats):
        forward = fresh()
        start = time.perf_counter()
        mx.eval(forward(prompt))
        middle = time.perf_counter()
        for token in fed:
            mx.eval(forward(token))
        decode_s += time.perf_counter() - middle
        prefill_s += middle - start
    now = memory()
    return {
        "prefill_s": prefill_s / repeats,
        "ttft_s": prefill_s / repeats,
        "decode_s": decode_s / repeats,
        "decode_tokens": steps,
        "peak_bytes": now["peak_bytes"],
        "rss_bytes": now["rss_bytes"],
    }
