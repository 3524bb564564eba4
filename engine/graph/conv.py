"""The short causal convolution in front of a recurrence, one filter a channel.

Letters: B rows, L length, C channels, W width of the filter.
"""

from __future__ import annotations

import mlx.core as mx

from engine.graph.params import Weights
from engine.kv.batched import Padding


class CausalConv:
    """Each channel over the present token and the W - 1 before it: weight [C, W, 1], bias [C] under `path`."""

    def __init__(self, weights: Weights, path: str, channels: int, width: int, bias: bool = False) -> None:
        self.width, self.training = width, weights.training
        self.weight = weights.take(f"{path}.weight", (channels, width, 1))
        self.bias = weights.take(f"{path}.bias", (channels,)) if bias else None

    def __call__(self, x: mx.array, past: mx.array | None, padding: Padding | None = None) -> tuple[mx.array, mx.array]:
        """x [B, L, C] behind `past` [B, W - 1, C] (None: zeros) -> ([B, L, C], the past of the next call)."""
        B, L, C = x.shape
        if padding is not None:
            x = mx.where(padding.mask[..., None], x, 0)
        if past is None:
            past = mx.zeros((B, self.width - 1, C), x.dtype)
        x = mx.concatenate([past, x], axis=1)  # [B, W - 1 + L, C]
        y = self._by_taps(x, L) if self.training else mx.conv1d(x, self.weight, groups=C)
        y = y if self.bias is None else y + self.bias
        if padding is not None and padding.lengths is not None:
            ends = mx.clip(padding.lengths, 0, L)[:, None] + mx.arange(self.width - 1)  # [B, W - 1]
            return y, mx.take_along_axis(x, ends[..., None], axis=1)
        return y, mx.contiguous(x[:, L:, :])  # a copy: a view would keep the whole of x in memory

    def _by_taps(self, x: mx.array, length: int) -> mx.array:
        """The same as a sum over the filter's places: products and sums have gradients on every device."""
        taps = [x[:, at : at + length] * self.weight[:, at, 0] for at in range(self.width)]
        y = taps[0]
        for tap in taps[1:]:
            y = y + tap
        return y
