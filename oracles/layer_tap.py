"""The residual streams of an mlx-lm model, layer by layer. Only for a worker's process.

Letters: L tokens, D width, C streams, A copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import mlx.core as mx


class LayerTap:
    """Records what the blocks of an mlx-lm model return, by wrapping the call of their class in this process."""

    _wrapped: ClassVar[set[type]] = set()
    _recording: ClassVar[LayerTap | None] = None

    def __init__(self, layers: list[Any]) -> None:
        self._index = {id(layer): i for i, layer in enumerate(layers)}
        self._rows: dict[str, list[mx.array]] = {}
        for kind in {type(layer) for layer in layers} - LayerTap._wrapped:
            kind.__call__ = _tapped(kind.__call__)
            LayerTap._wrapped.add(kind)

    def begin(self) -> None:
        LayerTap._recording, self._rows = self, {}

    def end(self) -> dict[str, mx.array]:
        """ "layer.<i>" -> [L, D]; "layer.-1" is what entered the first block."""
        tensors = {name: mx.concatenate(rows) for name, rows in self._rows.items()}
        LayerTap._recording, self._rows = None, {}
        return tensors

    def record(self, layer: Any, before: mx.array, after: Any) -> None:
        """Keep what a block returned: the residual stream, or a tuple that begins with it."""
        index = self._index.get(id(layer))
        if index is None:
            return
        if index == 0:
            self._rows.setdefault("layer.-1", []).append(_stream(before))
        self._rows.setdefault(f"layer.{index}", []).append(_stream(after[0] if isinstance(after, tuple) else after))


def _tapped(call: Callable[..., Any]) -> Callable[..., Any]:
    def tapped(layer: Any, *args: Any, **kwargs: Any) -> Any:
        out = call(layer, *args, **kwargs)
        if LayerTap._recording is not None:
            before = args[0] if args else next(iter(kwargs.values()))  # gptj passes all by name
            LayerTap._recording.record(layer, before, out)
        return out

    return tapped


def _stream(x: mx.array) -> mx.array:
    """[1, L, D] -> [L, D]; several streams [1, L, C, D] (deepseek_v41) -> [L, C, D], and [A, 1, L, D] (gemma3n) ->
    [L, A * D]."""
    if x.ndim == 3 or x.shape[0] == 1:
        return x[0]
    return mx.moveaxis(x[:, 0], 0, 1).reshape(x.shape[2], -1)
