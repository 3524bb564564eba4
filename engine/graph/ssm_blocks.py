"""Mamba-2's recurrence in blocks of tokens, all blocks at once: the form in which it is trained.

The form that serves multiplies every token by a state of its own; this one makes matrix products of whole blocks, whose
gradients need a fraction of the memory. It rounds differently, so nothing is served with it.

Letters: B rows, L length, H heads, P values of a head, G groups of heads, J heads of a group, N state size, C tokens of
a block, K blocks. What all heads of a group share is multiplied once: their values stand side by side, [C, J * P].
"""

from __future__ import annotations

import mlx.core as mx

BLOCK = 64


def scan_blocks(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array]:
    """As `ssm.scan`: x [B, L, H, P], dt [B, L, H], rates [H], b, c [B, L, G, N], state [B, H, P, N] or None."""
    (B, L, H, P), (G, N) = x.shape, b.shape[2:]
    C, J = BLOCK, H // G
    # Padded tokens have a step of no size: nothing enters, nothing fades.
    x, dt, b, c = (_whole(part) for part in (x, dt, b, c))
    K = x.shape[1] // C
    logs = (dt * rates).reshape(B, K, C, H).swapaxes(2, 3)
    total = mx.cumsum(logs, axis=-1)  # [B, K, H, C]: the logarithm of the decay up to each token of its block
    gained = x.reshape(B, K, C, H, P) * dt.reshape(B, K, C, H, 1)
    rows, columns = (part.reshape(B, K, C, G, N).swapaxes(2, 3) for part in (b, c))  # [B, K, G, C, N]
    scores = (columns @ rows.swapaxes(-1, -2))[:, :, :, None] * _decays(total).reshape(B, K, G, J, C, C)
    y = (scores.reshape(B, K, H, C, C) @ gained.swapaxes(2, 3)).swapaxes(2, 3)  # [B, K, C, H, P]
    left = mx.exp(total[..., -1:] - total).swapaxes(2, 3)[..., None]  # [B, K, C, H, 1]: at the end of its block
    entered = rows.swapaxes(-1, -2) @ (gained * left).reshape(B, K, C, G, J * P).swapaxes(2, 3)  # [B, K, G, N, J * P]
    entered = entered.reshape(B, K, G, N, J, P).transpose(0, 2, 4, 1, 3, 5).reshape(B, H, K, N * P)
    first = mx.zeros((B, H, 1, N * P), entered.dtype) if state is None else state.swapaxes(-1, -2).reshape(B, H, 1, -1)
    ends = mx.cumsum(total[..., -1].swapaxes(1, 2), axis=-1)  # [B, H, K]
    ends = mx.concatenate([mx.zeros((B, H, 1), total.dtype), ends], axis=-1)
    states = _decays(ends) @ mx.concatenate([first, entered], axis=2)  # [B, H, K + 1, N * P]: before each block
    before = states[:, :, :-1].reshape(B, G, J, K, N, P).transpose(0, 3, 1, 4, 2, 5).reshape(B, K, G, N, J * P)
    seen = (columns @ before).reshape(B, K, G, C, J, P).transpose(0, 1, 3, 2, 4, 5).reshape(B, K, C, H, P)
    y = y + mx.exp(total).swapaxes(2, 3)[..., None] * seen
    y = y.reshape(B, K * C, H, P)[:, :L]
    return y.astype(x.dtype), states[:, :, -1].reshape(B, H, N, P).swapaxes(-1, -2)


def _decays(total: mx.array) -> mx.array:
    """Running sums of logarithms [..., T] -> [..., T, T]: what is left at i of what entered at j <= i, else 0."""
    between = total[..., :, None] - total[..., None, :]
    return mx.tril(mx.exp(mx.minimum(between, 0.0)))


def _whole(x: mx.array) -> mx.array:
    """[B, L, ...] with zeros behind the last token, to whole blocks."""
    behind = -x.shape[1] % BLOCK
    return mx.pad(x, [(0, 0), (0, behind), *[(0, 0)] * (x.ndim - 2)]) if behind else x
