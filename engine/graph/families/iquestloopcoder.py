"""iquestloopcoder: llama whose layers run twice; the second pass mixes, by a gate on each query, a window of its own
keys with all keys of the first."""

from dataclasses import replace

from engine.graph.families.common import ArchSpec, Config
from engine.graph.scopes import TwoScopesSpec


def spec(config: Config) -> ArchSpec:
    if config.positive("loop_num", 2) != 2:
        raise config.invalid("loop_num", config["loop_num"], "2")
    flat = config.replaced(
        rope_traditional=False,
        rope_theta=config.number("rope_theta", 500000.0),
        max_position_embeddings=config.positive("max_position_embeddings", 131072),
        num_key_value_heads=config.positive("num_key_value_heads"),
    )
    attn = flat.attention(head_dim=config.positive("head_dim"), bias=config.flag("attention_bias", False))
    local = replace(attn, cache="rotating", window=config.positive("loop_window_size", 64))
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    first = config.layers(attn, feed)
    every = range(len(first))
    mixed = [TwoScopesSpec(local=local, reads=i, gate=f"model.gate_projections.{i}") for i in every]
    keys = tuple(f"model.layers.{i}" for i in every) * 2
    return config.arch(first + config.layers(mixed, feed), tied=config.tied(False), layers_key=keys, rules=())
