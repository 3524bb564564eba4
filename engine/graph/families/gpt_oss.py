"""gpt_oss: attention sinks, biases everywhere, sliding and full layers in turn, clipped experts, softmax over the
chosen ones; the original stores gate and up rows in turn, in mxfp4 blocks or transposed in 16 bit."""

import math
from typing import Any

import mlx.core as mx

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.renames import Change, Rename, Split
from engine.graph.spec import ArchSpec, RouterSpec

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
    config = config.defaulted(DEFAULTS["gpt_oss"])
    head_dim, count = config.positive("head_dim"), config.positive("num_hidden_layers")
    sparse = config.moe(
        experts="num_local_experts",
        hidden="intermediate_size",
        router=RouterSpec(key="router", bias=True, score="logits", pick="back", selected="softmax"),
        expert=config.mlp(act="swiglu_oai", bias=True),
        at="experts",
    )
    windows = config.window_layers([("sliding_attention", "full_attention")[i % 2] for i in range(count)])
    shared: dict[str, Any] = {"scale": 1 / math.sqrt(head_dim), "rope": config.rope(head_dim), "sinks": "sinks"}
    attn = [config.attention(bias=True, **shared, **window) for window in windows]
    return config.arch(config.layers(attn.__getitem__, sparse), tied=False, more_rules=_RULES)
