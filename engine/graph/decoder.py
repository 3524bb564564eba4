"""The decoder that runs an `ArchSpec`. It knows no family; its contract ends at logits.

Letters: B rows, L length, D model dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.graph.layers import Layer, Norm
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.base import LayerKV


class Decoder:
    """A model ready to run. `forward_hidden` is apart from `project`, so that nobody builds prompt x vocabulary
    logits by accident."""

    def __init__(self, spec: ArchSpec, weights: Weights) -> None:
        self.spec = spec
        weights.drop(spec.dropped)
        self.embed = weights.embedding("model.embed_tokens", spec.vocab, spec.dim)
        self.layers = [Layer(layer, spec, weights, f"model.layers.{i}") for i, layer in enumerate(spec.layers)]
        self.norm = Norm(weights.take("model.norm.weight", (spec.dim,)), spec.norm_eps, spec.norm_offset)
        self.head = self.embed.as_linear if spec.tied else weights.linear("lm_head", spec.vocab, spec.dim, bias=False)
        weights.finish()

    def forward_hidden(
        self, ids: mx.array, caches: Sequence[LayerKV], taps: dict[int, mx.array] | None = None
    ) -> mx.array:
        """Token ids [B, L] -> normalised hidden states [B, L, D]; appends to every cache.

        `taps`, where given, receives the residual stream [B, L, D] after each layer; -1 is the embedding.
        """
        x = self.embed(ids)  # [B, L, D]
        if self.spec.embed_scale is not None:
            x = x * self.spec.embed_scale
        if taps is not None:
            taps[-1] = x
        for i, (layer, kv) in enumerate(zip(self.layers, caches, strict=True)):
            x = layer(x, kv)
            if taps is not None:
                taps[i] = x
        return self.norm(x)

    def project(self, hidden: mx.array) -> mx.array:
        """Hidden states [..., D] -> logits [..., V]."""
        logits = self.head(hidden)
        cap = self.spec.final_softcap
        if cap is not None:
            logits = mx.tanh(logits / cap) * cap
        return logits
