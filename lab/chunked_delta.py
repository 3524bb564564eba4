"""`python -m lab.chunked_delta`: what a chunked form of the gated delta rule would give on this machine.

The engine runs the recurrence token by token, as mlx-lm does: on a CPU the loop is the floor of its prefill. The
chunked form solves a block of tokens at once and is faster, but it rounds differently, so it is not enabled anywhere; a
candidate for an experiment. Random inputs, float32, one layer.

Letters: H heads, T tokens, D dimension of keys and values, C tokens of a block, N blocks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine import machine, use_blas
from lab.lock import hold_timing

if TYPE_CHECKING:
    import mlx.core as mx  # loaded where it is used: a BLAS must be chosen before

H, D, T, C, RUNS = 8, 64, 512, 64, 5
Inputs = tuple["mx.array", "mx.array", "mx.array", "mx.array", "mx.array"]


def drawn() -> Inputs:
    """Queries, keys, values [H, T, D], decay and rate [H, T]; queries and keys have length 1."""
    import mlx.core as mx

    keys = mx.random.split(mx.random.key(0), 5)
    q, k, v = (mx.random.normal((H, T, D), key=key) for key in keys[:3])
    q, k = (x / mx.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    decay = mx.exp(-0.1 * mx.random.uniform(shape=(H, T), key=keys[3]))
    return q, k, v, decay, mx.random.uniform(shape=(H, T), key=keys[4])


def step(
    state: mx.array, q: mx.array, k: mx.array, v: mx.array, decay: mx.array, rate: mx.array
) -> tuple[mx.array, mx.array]:
    """One token: state [H, D, D] (values by keys), q, k, v [H, D], decay and rate [H] -> state, output [H, D]."""
    state = state * decay[:, None, None]
    missing = (v - (state * k[:, None]).sum(axis=-1)) * rate[:, None]
    state = state + missing[..., None] * k[:, None]
    return state, (state * q[:, None]).sum(axis=-1)


def by_token(inputs: Inputs) -> mx.array:
    """Outputs [H, T, D], a token at a time, each step compiled."""
    import mlx.core as mx

    state, out, compiled = mx.zeros((H, D, D)), [], mx.compile(step)
    for t in range(T):
        state, y = compiled(state, *[x[:, t] for x in inputs])
        out.append(y)
    return mx.stack(out, axis=1)


def by_block(inputs: Inputs) -> mx.array:
    """The same from blocks: within one, what each token adds is the solution of a triangular system."""
    import mlx.core as mx

    q, k, v = (x.reshape(H, T // C, C, D) for x in inputs[:3])
    total = mx.cumsum(mx.log(inputs[3]).reshape(H, T // C, C), axis=-1)  # [H, N, C], the decay up to each token
    rate = inputs[4].reshape(H, T // C, C, 1)
    between = mx.exp(mx.minimum(total[..., :, None] - total[..., None, :], 0))  # [H, N, C, C]
    before, upto = mx.tril(mx.ones((C, C)), -1), mx.tril(mx.ones((C, C)))
    solve = mx.linalg.tri_inv(mx.eye(C) + rate * (k @ k.swapaxes(-1, -2)) * between * before, stream=mx.cpu)
    own, past = solve @ (rate * v), solve @ (rate * k * mx.exp(total)[..., None])
    scores = (q @ k.swapaxes(-1, -2)) * between * upto
    state, out = mx.zeros((H, D, D)), []  # keys by values
    for n in range(T // C):
        added = own[:, n] - past[:, n] @ state
        out.append((q[:, n] * mx.exp(total[:, n])[..., None]) @ state + scores[:, n] @ added)
        end = total[:, n, -1]
        kept = k[:, n] * mx.exp(end[:, None] - total[:, n])[..., None]
        state = state * mx.exp(end)[:, None, None] + kept.swapaxes(-1, -2) @ added
    return mx.stack(out, axis=1).reshape(H, T, D)


def best_ms(function: Callable[[Inputs], mx.array], inputs: Inputs) -> float:
    """The shortest of some runs behind a first one."""
    import mlx.core as mx

    mx.eval(function(inputs))
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        mx.eval(function(inputs))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    use_blas(sys.argv[1] if len(sys.argv) > 1 else "auto")
    import mlx.core as mx

    inputs = drawn()
    mx.eval(inputs)
    gap = mx.abs(by_token(inputs) - by_block(inputs)).max().item()
    with hold_timing("python -m lab.chunked_delta"):
        token_ms, block_ms = best_ms(by_token, inputs), best_ms(by_block, inputs)
    print(
        f"{machine().key}: {T} tokens, {H} heads of {D}: by token {token_ms:.0f} ms, in blocks of {C} "
        f"{block_ms:.0f} ms a layer; max |diff| {gap:.1e}"
    )


if __name__ == "__main__":
    main()
