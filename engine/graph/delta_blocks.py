"""The gated delta rule in blocks of tokens: the form in which it is trained.

What the tokens of a block add to the state is the solution of a unit lower triangular system, so a block costs a few
matrix products instead of a loop. It rounds differently from the loop, so nothing is served with it.

Letters: B rows, L length, H heads, E key dimension, V value dimension, C tokens of a block, N blocks.
"""

from __future__ import annotations

import mlx.core as mx

from engine.errors import InvalidValue

BLOCK = 64
# A decay that underflows has no logarithm; what is left of a state after a factor this small is lost in float32.
LEAST_DECAY = 1e-30


def unit_lower_inverse(matrix: mx.array) -> mx.array:
    """The inverse of [..., C, C], ones on the diagonal and zeros above it; C a power of two.

    By halves: [[P, 0], [Q, R]] has the inverse [[P', 0], [-R' Q P', R']]. Both halves are inverted at once, as more
    matrices of one leading axis: copies on CUDA take ten axes at most.
    """
    size = matrix.shape[-1]
    return _inverses(matrix.reshape(-1, size, size)).reshape(matrix.shape)


def _inverses(matrices: mx.array) -> mx.array:
    """Of each of [M, C, C]."""
    size = matrices.shape[-1]
    if size == 1:
        return mx.ones_like(matrices)
    half = size // 2
    upper, below, lower = matrices[:, :half, :half], matrices[:, half:, :half], matrices[:, half:, half:]
    first, second = mx.split(_inverses(mx.concatenate([upper, lower])), 2)
    top = mx.concatenate([first, mx.zeros_like(first)], axis=-1)
    bottom = mx.concatenate([-(second @ (below @ first)), second], axis=-1)
    return mx.concatenate([top, bottom], axis=-2)


def delta_blocks(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array | None, block: int = BLOCK
) -> tuple[mx.array, mx.array]:
    """As `delta_net.delta_rule`, with one decay a head: g [B, L, H]; another shape is `InvalidValue`."""
    (B, L, K, E), (H, V) = q.shape, v.shape[2:]
    if g.ndim != 3:
        raise InvalidValue("decay", g.shape, "[B, L, H]: one factor a head")
    if H > K:
        q, k = mx.repeat(q, H // K, axis=2), mx.repeat(k, H // K, axis=2)
    # Padded tokens have no key and no rate: they change nothing, and what they read is cut off.
    q, k, v = (_cut(part, block) for part in (q, k, v))  # [B, H, N, C, E or V]
    rate = _cut(beta[..., None], block)  # [B, H, N, C, 1]
    logs = _cut(mx.log(mx.maximum(g, LEAST_DECAY))[..., None], block).squeeze(-1)
    total = mx.cumsum(logs, axis=-1)  # [B, H, N, C]: the logarithm of the decay up to each token of its block
    between = mx.tril(mx.exp(mx.minimum(total[..., :, None] - total[..., None, :], 0.0)))  # [B, H, N, C, C]
    crossed = mx.tril(rate * (k @ k.swapaxes(-1, -2)) * between, -1)
    solve = unit_lower_inverse(crossed + mx.eye(block))
    reach = mx.exp(total)[..., None]  # [B, H, N, C, 1]
    own, past = solve @ (rate * v), solve @ (rate * k * reach)  # [B, H, N, C, V], [B, H, N, C, E]
    scores = (q @ k.swapaxes(-1, -2)) * between
    read, kept = q * reach, k * mx.exp(total[..., -1:] - total)[..., None]
    memory = mx.zeros((B, H, E, V), v.dtype) if state is None else state.swapaxes(-1, -2)
    parts = []
    for n in range(q.shape[2]):
        added = own[:, :, n] - past[:, :, n] @ memory  # [B, H, C, V]
        parts.append(read[:, :, n] @ memory + scores[:, :, n] @ added)
        end = mx.exp(total[:, :, n, -1])[..., None, None]
        memory = memory * end + kept[:, :, n].swapaxes(-1, -2) @ added
    out = mx.concatenate(parts, axis=2)[:, :, :L].transpose(0, 2, 1, 3)  # [B, L, H, V]
    return out, memory.swapaxes(-1, -2)


def _cut(x: mx.array, block: int) -> mx.array:
    """[B, L, H, D] -> [B, H, N, C, D], zeros behind the last token."""
    B, L, H, D = x.shape
    x = mx.pad(x, [(0, 0), (0, -L % block), (0, 0), (0, 0)])
    return x.transpose(0, 2, 1, 3).reshape(B, H, -1, block, D)
