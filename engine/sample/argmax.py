"""A lever for CUDA: a greedy step's token in one pass over the logits, without its log-probabilities being written out.

B rows, V vocabulary.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx

THREADS = 256
# A block a row. Each value is rounded to the logits' dtype as a subtraction rounds it, so that values that rounding
# ties are tied here; among equals the first index wins. A value that no comparison beats (NaN) leaves the index at 0.
SOURCE = """
    __shared__ float best_of[THREADS];
    __shared__ unsigned int at_of[THREADS];
    const unsigned int row = blockIdx.x, lane = threadIdx.x;
    const float total = static_cast<float>(totals[row]);
    float best = -__int_as_float(0x7f800000);  // minus infinity
    unsigned int at = 0xffffffffu;
    for (unsigned int i = lane; i < SIZE; i += THREADS) {
        const float value = static_cast<float>(
            static_cast<T>(static_cast<float>(logits[static_cast<size_t>(row) * SIZE + i]) - total));
        if (value > best) { best = value; at = i; }
    }
    best_of[lane] = best;
    at_of[lane] = at;
    for (unsigned int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            const float other = best_of[lane + half];
            const unsigned int there = at_of[lane + half];
            if (other > best_of[lane] || (other == best_of[lane] && there < at_of[lane])) {
                best_of[lane] = other;
                at_of[lane] = there;
            }
        }
    }
    if (lane == 0) out[row] = at_of[0] < SIZE ? at_of[0] : 0;
"""


def normalised_argmax(logits: mx.array) -> tuple[mx.array, mx.array]:
    """Logits [B, V] -> (tokens uint32 [B], their logprobs [B] in the logits' dtype).

    Both have the bits of `logprobs_of` followed by argmax: the first index of the largest rounded x - logsumexp(x).
    """
    totals = mx.logsumexp(logits, axis=-1, keepdims=True)  # [B, 1]
    rows, size = logits.shape
    (tokens,) = _kernel()(
        inputs=[logits, totals],
        template=[("T", logits.dtype), ("SIZE", size), ("THREADS", THREADS)],
        grid=(rows * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(rows,)],
        output_dtypes=[mx.uint32],
    )
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1) - totals
    return tokens, chosen.squeeze(-1)


def unfit_for_normalised(device: str) -> str:
    """Why this device has no such kernel; "" where it has."""
    if device == "cuda":
        return ""
    reason = "log-probabilities cost it nothing to speak of" if device == "cpu" else "no kernel was proved there"
    return f"on {device} {reason}"


@cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel(
        name="normalised_argmax", input_names=["logits", "totals"], output_names=["out"], source=SOURCE
    )
