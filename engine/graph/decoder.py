"""The decoder that runs an `ArchSpec`. It knows no family; its contract ends at logits.

Letters: B rows, L length, D model dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.errors import InvalidValue
from engine.graph.forward import Forward, build
from engine.graph.norms import build_norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.graph.stem import Head
from engine.kv.fixed import Fixed
from engine.kv.rows import Slot


class Decoder:
    """A model ready to run. `forward_hidden` is apart from `project`, so that nobody builds prompt x vocabulary
    logits by accident."""

    def __init__(self, spec: ArchSpec, weights: Weights) -> None:
        self.spec = spec
        self.stem = build(spec.stem, spec, weights)
        at = spec.layers_key
        keys = [f"{at}.{i}" for i in range(len(spec.layers))] if isinstance(at, str) else at
        self.layers = [build(layer, spec, weights, key) for layer, key in zip(spec.layers, keys, strict=True)]
        self.outlet = build(spec.outlet, spec, weights, "") if spec.outlet is not None else None
        self.norm = build_norm(spec.norm, spec.dim, weights, "") if spec.norm is not None else None
        self.head = Head(spec.head, spec, weights, self.stem.table)
        weights.finish()
        # (layer, index of its first cache), in the order in which they run
        self._steps = []
        first = len(spec.stem_caches)
        for _ in range(spec.loops):
            for layer, layer_spec in zip(self.layers, spec.layers, strict=True):
                self._steps.append((layer, first))
                first += len(layer_spec.caches)

    def forward_hidden(
        self,
        ids: mx.array,
        caches: Sequence[Slot | Fixed],
        taps: dict[int, mx.array] | None = None,
        *,
        early: bool = False,
    ) -> mx.array:
        """Token ids [B, L] -> normalised hidden states [B, L, D]; appends to every cache. early: each layer is on its
        way as soon as it is built, so that the device need not wait for the last of them.

        `taps`, where given, receives the residual stream [B, L, D] after each layer; -1 is what entered the first.
        """
        ctx = Forward(ids, caches)
        x = ctx.embedded = self.stem(ctx)  # [B, L, D]
        if taps is not None:
            taps[-1] = x
        for i, (layer, cache) in enumerate(self._steps, start=1):
            x = layer(x, ctx, cache)
            if early:
                mx.async_eval(x)
            if taps is not None:
                taps[i - 1] = x
            if self.spec.loop_norm and i % len(self.layers) == 0 and self.norm is not None:
                x = self.norm(x)
        if self.outlet is not None:
            x = self.outlet(x, ctx)
        return x if self.norm is None or self.spec.loop_norm else self.norm(x)

    def project(self, hidden: mx.array) -> mx.array:
        """Hidden states [..., D] -> logits [..., V]."""
        return self.head(hidden)

    def lens(self, residual: mx.array) -> mx.array:
        """The logit lens: the residual stream [..., D] after any layer -> logits [..., V], by the final norm and the
        head; after the last layer they are the model's own. Raises as `check_lens`."""
        self.check_lens()
        return self.project(residual if self.norm is None else self.norm(residual))

    def check_lens(self) -> None:
        """Raise `InvalidValue` where more than a norm stands between a layer's stream and the head."""
        if self.outlet is not None:
            allowed = "none: what this model's layers pass on is no single stream that the final norm takes"
            raise InvalidValue("lens", type(self.spec.outlet).__name__, allowed)
