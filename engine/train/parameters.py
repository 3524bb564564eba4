"""A model as a function of a tree of parameters: names of the checkpoint -> arrays, read by the graphs that serve.

Letters: B rows, L length, D model dimension, H heads.
"""

from __future__ import annotations

import math
import zlib

import mlx.core as mx

from engine.graph.decoder import Decoder
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.plan import KVPlan
from engine.kv.request import parse_kv

Parameters = dict[str, mx.array]

EMBEDDING_STD = 0.04
# Projections that end in the residual stream begin smaller, by the root of how many of them there are (GPT-2's rule).
INTO_STREAM = ("o_proj", "down_proj", "out_proj")
STEP_SIZES = (0.001, 0.1)  # of a state space's step, where training begins (mamba2's defaults)
DECAYS = (1.0, 16.0)


def decoder_of(spec: ArchSpec, parameters: Parameters) -> Decoder:
    """The graph over these parameters, in its training form. Cheap: a traced function builds it once a trace.

    Raises `WeightsMismatch` where names or shapes are not those that the spec asks.
    """
    return Decoder(spec, Weights(parameters, {}, spec.family, spec.at, training=True))


def hidden_states(decoder: Decoder, ids: mx.array) -> mx.array:
    """Token ids [B, L] -> normalised hidden states [B, L, D], from empty native caches."""
    caches = KVPlan.build(parse_kv("native"), decoder.spec.caches).fresh()
    return decoder.forward_hidden(ids, caches)


def draw_parameters(spec: ArchSpec, seed: int) -> Parameters:
    """Where training begins: every parameter that the graph of `spec` asks for, float32, each drawn from `seed` and its
    own name."""

    def fill(key: str, shape: tuple[int, ...]) -> mx.array:
        return first_value(spec, key, shape, mx.random.key(seed ^ zlib.crc32(key.encode())))

    weights = Weights({}, {}, spec.family, spec.at, training=True, fill=fill)
    Decoder(spec, weights)
    drawn = weights.given()
    mx.eval(drawn)
    return drawn


def first_value(spec: ArchSpec, key: str, shape: tuple[int, ...], random: mx.array) -> mx.array:
    """Of one parameter, by its name: decays, steps, norms, filters, embeddings, and matrices [..., O, I]."""
    *_, module, leaf = ["", *key.split(".")]
    if leaf == "A_log":
        return mx.log(mx.random.uniform(*DECAYS, shape, key=random))
    if leaf == "dt_bias":
        low, high = map(math.log, STEP_SIZES)
        step = mx.exp(mx.random.uniform(low, high, shape, key=random))
        return step + mx.log(-mx.expm1(-step))  # softplus of it is the step
    if leaf == "D":
        return mx.ones(shape)
    if len(shape) == 1:
        one = 1.0 - (spec.norm.offset if spec.norm is not None else 0.0)
        return mx.full(shape, one) if leaf == "weight" else mx.zeros(shape)
    if module.endswith("conv1d"):  # [C, W, 1]
        bound = shape[1] ** -0.5
        return mx.random.uniform(-bound, bound, shape, key=random)
    if module.startswith("embed") and len(shape) == 2:
        return EMBEDDING_STD * mx.random.normal(shape, key=random)
    std = float(shape[-1]) ** -0.5
    if module in INTO_STREAM:
        std /= math.sqrt(2 * len(spec.layers))
    return std * mx.random.normal(shape, key=random)
