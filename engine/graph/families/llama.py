"""llama: pre-norms, grouped-query attention, gated MLP; sliding layers where layer_types says so."""

from typing import Any

from engine.graph.families import common
from engine.graph.families.common import Config, arch, attention, mlp, window_layers
from engine.graph.spec import ArchSpec


def layers(config: Config, **changes: Any) -> list[Any]:
    """Llama's layers, one each; `changes` to their attention."""
    bias, count = config.flag("attention_bias", False), config.positive("num_hidden_layers")
    every = window_layers(config, ["full_attention"] * count)
    feed = mlp(config, bias=config.flag("mlp_bias", False))
    return common.layers(config, lambda i: attention(config, **{"bias": bias, **every[i], **changes}), feed)


def spec(config: Config) -> ArchSpec:
    return arch(config, layers(config))
