"""Mamba-2's recurrence in blocks of tokens, all blocks at once: the form in which it is trained.

The form that serves multiplies every token by a state of its own; this one makes matrix products of whole blocks, whose
gradients need a fraction of the memory. It rounds differently, so nothing is served with it.

Letters: B rows, L length, H heads, P values of a head, G groups of heads, N state size, C tokens of a block, K blocks.
"""

from __future__ import annotations

import mlx.core as mx

BLOCK = 64


def scan_blocks(
    x: mx.array, dt: mx.array, rates: mx.array, b: mx.array, c: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array]:
    """As `ssm.scan`: x [B, L, H, P], dt [B, L, H], rates [H], b, c [B, L, G, N], state [B, H, P, N] or None."""
    (B, L, H, P), (G, N) = x.shape, b.shape[2:]
    # Padded tokens have a step of no size: nothing enters, nothing fades.
    dt = mx.pad(dt, [(0, 0), (0, -L % BLOCK), (0, 0)])
    logs = (dt * rates).swapaxes(1, 2).reshape(B, H, -1, BLOCK)
    total = mx.cumsum(logs, axis=-1)  # [B, H, K, C]: the logarithm of the decay up to each token of its block
    gained = _cut(x) * dt.swapaxes(1, 2).reshape(B, H, -1, BLOCK, 1)  # [B, H, K, C, P]
    rows, columns = (mx.repeat(_cut(part), H // G, axis=1) for part in (b, c))  # [B, H, K, C, N]
    y = (columns @ rows.swapaxes(-1, -2) * _decays(total)) @ gained
    left = mx.exp(total[..., -1:] - total)[..., None]  # [B, H, K, C, 1]: of each token at the end of its block
    entered = (gained * left).swapaxes(-1, -2) @ rows  # [B, H, K, P, N]
    first = mx.zeros((B, H, 1, P, N), entered.dtype) if state is None else state[:, :, None]
    ends = mx.concatenate([mx.zeros((B, H, 1), total.dtype), mx.cumsum(total[..., -1], axis=-1)], axis=-1)
    after = _decays(ends) @ mx.concatenate([first, entered], axis=2).reshape(B, H, -1, P * N)  # [B, H, K + 1, P * N]
    states = after.reshape(B, H, -1, P, N)
    y = y + mx.exp(total)[..., None] * (columns @ states[:, :, :-1].swapaxes(-1, -2))
    y = y.reshape(B, H, -1, P)[:, :, :L].swapaxes(1, 2)
    return y.astype(x.dtype), states[:, :, -1]


def _decays(total: mx.array) -> mx.array:
    """Running sums of logarithms [..., T] -> [..., T, T]: what is left at i of what entered at j <= i, else 0."""
    between = total[..., :, None] - total[..., None, :]
    return mx.tril(mx.exp(mx.minimum(between, 0.0)))


def _cut(x: mx.array) -> mx.array:
    """[B, L, H, D] -> [B, H, K, C, D], zeros behind the last token."""
    B, L, H, D = x.shape
    x = mx.pad(x, [(0, 0), (0, -L % BLOCK), (0, 0), (0, 0)])
    return x.swapaxes(1, 2).reshape(B, H, -1, BLOCK, D)
