"""A head that predicts one token more: of the hidden state at t and the token t + 1, the token t + 2.

Norms of both, one projection of the two together, one layer of the model's own kind, a norm, and the model's head. The
names are those of qwen3_next's checkpoints (`mtp.*`).

Letters: B rows, L length, D model dimension.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.graph.forward import Forward, build
from engine.graph.norms import norm_like_last
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.plan import KVPlan
from engine.kv.request import parse_kv
from engine.train.loss import Objective, target_losses
from engine.train.parameters import Parameters, decoder_of, first_value, hidden_states

PREFIX = "mtp"


class MtpHead:
    """The head of a model whose last layer is of the kind that this one has too."""

    def __init__(self, spec: ArchSpec, weights: Weights) -> None:
        self.spec, self._layer_spec = spec, spec.layers[-1]
        self.of_hidden = norm_like_last(f"{PREFIX}.pre_fc_norm_hidden", spec.dim, spec, weights, "")
        self.of_token = norm_like_last(f"{PREFIX}.pre_fc_norm_embedding", spec.dim, spec, weights, "")
        self.fc = weights.linear(f"{PREFIX}.fc", spec.dim, 2 * spec.dim, bias=False)
        self.layer = build(self._layer_spec, spec, weights, f"{PREFIX}.layers.0")
        self.norm = norm_like_last(f"{PREFIX}.norm", spec.dim, spec, weights, "")
        weights.finish()

    def __call__(self, decoder: Decoder, hidden: mx.array, following: mx.array) -> mx.array:
        """Hidden states [B, L, D] and the ids behind each of them [B, L] -> hidden states [B, L, D] for the head."""
        caches = KVPlan.build(parse_kv("native"), self._layer_spec.caches).fresh()
        embedded = decoder.stem(Forward(following, caches))
        both = mx.concatenate([self.of_token(embedded), self.of_hidden(hidden)], axis=-1)  # [B, L, 2D]
        return self.norm(self.layer(self.fc(both), Forward(following, caches), 0))


def draw_mtp(spec: ArchSpec, seed: int) -> Parameters:
    """Where training of the head begins."""

    def fill(key: str, shape: tuple[int, ...]) -> mx.array:
        return first_value(spec, key, shape, mx.random.key(seed ^ zlib.crc32(key.encode())))

    weights = Weights({}, {}, spec.family, training=True, fill=fill)
    MtpHead(spec, weights)
    drawn = weights.given()
    mx.eval(drawn)
    return drawn


def mtp_losses(
    spec: ArchSpec, base: Mapping[str, mx.array], head: Mapping[str, mx.array], rows: mx.array
) -> tuple[mx.array, mx.array]:
    """Rows [B, T + 1] -> logits [B, T - 1, V] of the tokens from the third on, and their losses in nats [B, T - 1]."""
    decoder = decoder_of(spec, dict(base))
    made = MtpHead(spec, Weights(head, {}, spec.family, training=True))
    hidden = mx.stop_gradient(hidden_states(decoder, rows[:, :-2]))
    logits = decoder.project(made(decoder, hidden, rows[:, 1:-1]))
    return logits, target_losses(logits, rows[:, 2:])


def mtp_objective(spec: ArchSpec, base: Mapping[str, mx.array]) -> Objective:
    """The objective of the head's parameters; the model's stay as they are."""

    def objective(head: Parameters, rows: mx.array, weights: mx.array) -> mx.array:
        _, losses = mtp_losses(spec, base, head, rows)
        return (losses * weights[:, 1:]).sum()

    return objective
