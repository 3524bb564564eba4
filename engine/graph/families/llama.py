"""llama: pre-norms, grouped-query attention, gated MLP; sliding layers where layer_types says so."""

from typing import Any

from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


def layers(config: Config, **changes: Any) -> list[Any]:
    """Llama's layers, one each; `changes` to their attention."""
    bias, count = config.flag("attention_bias", False), config.positive("num_hidden_layers")
    every = config.window_layers(["full_attention"] * count)
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    return config.layers(lambda i: config.attention(**{"bias": bias, **every[i], **changes}), feed)


def spec(config: Config) -> ArchSpec:
    return config.arch(layers(config))
