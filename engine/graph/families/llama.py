"""llama: pre-norms, grouped-query attention, gated MLP; sliding layers where layer_types says so."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config


def layers(config: Config, **changes: Any) -> list[Any]:
    """Llama's layers, one each; `changes` to their attention."""
    bias, count = config.flag("attention_bias", False), config.positive("num_hidden_layers")
    every = config.window_layers(["full_attention"] * count)
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    return config.layers(lambda i: config.attention(**{"bias": bias, **every[i], **changes}), feed)


def spec(config: Config) -> ArchSpec:
    return config.arch(layers(config))


def needing_kv_heads(config: Config, **changes: Any) -> ArchSpec:
    """Without windows, with biases by the same flags, and untied where the config is silent; num_key_value_heads must
    be there."""
    flat = config.replaced(rope_traditional=False, num_key_value_heads=config.positive("num_key_value_heads"))
    attn, feed = (
        flat.attention(bias=config.flag("attention_bias", False)),
        config.mlp(bias=config.flag("mlp_bias", False)),
    )
    return config.decoder(attn, feed, tied=config.tied(False), **changes)
