"""How one timed sample is taken; the same clock for every stack, read in the stack's own process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from engine import memory


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
