"""gpt_oss: attention sinks, biases everywhere, sliding and full layers in turn, clipped experts, softmax over the
chosen ones; the original stores gate and up rows in turn, in mxfp4 blocks or transposed in 16 bit."""

import math
from typing import Any

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Change, Config, Rename, RouterSpec, Split

_RULES = (
    Change(r"_proj_blocks$", lambda w: w.view(mx.uint32).flatten(-2)),  # [E, O, G, 16] bytes -> [E, O, W] words
    Change(r"\.experts\.(gate_up|down)_proj$", lambda w: w.swapaxes(-1, -2)),  # [E, I, O] -> [E, O, I]
    Rename(r"(\.experts\.(gate_up|down)_proj)(_blocks)?$", r"\1.weight"),
    Rename(r"(\.experts\.(gate_up|down)_proj)_(scales|bias)$", r"\1.\3"),
    Split(
        r"(.*\.experts)\.gate_up_proj\.(\w+)",
        (r"\1.gate_proj.\2", r"\1.up_proj.\2"),
        lambda w: [mx.contiguous(w[:, ::2]), mx.contiguous(w[:, 1::2])],  # rows of [E, O, ...]
    ),
)


def spec(config: Config) -> ArchSpec:
    head_dim, expert = config.positive("head_dim"), config.mlp(act="swiglu_oai", bias=True)
    router = RouterSpec(key="router", bias=True, score="logits", pick="back", selected="softmax")
    names = {"experts": "num_local_experts", "hidden": "intermediate_size"}
    shared: dict[str, Any] = {"scale": 1 / math.sqrt(head_dim), "rope": config.rope(head_dim), "sinks": "sinks"}
    attn = [config.attention(bias=True, **shared, **w) for w in config.window_layers(config.full_every(2))]
    sparse = config.moe(router, expert=expert, at="experts", **names)
    return config.decoder(attn, sparse, tied=False, more_rules=_RULES)
