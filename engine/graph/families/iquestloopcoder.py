"""iquestloopcoder: llama whose layers run twice; the second pass mixes, by a gate on each query, a window of its own
keys with all keys of the first."""

from dataclasses import replace

from engine.errors import InvalidValue
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec, LayerSpec
from engine.graph.two_scopes import TwoScopesSpec


def spec(config: Config) -> ArchSpec:
    if config.positive("loop_num", 2) != 2:
        raise InvalidValue("config.json loop_num", config["loop_num"], "2")
    layers = config.positive("num_hidden_layers")
    flat = config.replaced(
        rope_traditional=False,
        rope_theta=config.number("rope_theta", 500000.0),
        max_position_embeddings=config.positive("max_position_embeddings", 131072),
        num_key_value_heads=config.positive("num_key_value_heads"),
    )
    attn = flat.attention(head_dim=config.positive("head_dim"), bias=config.flag("attention_bias", False))
    local = replace(attn, cache="rotating", window=config.positive("loop_window_size", 64))
    first = LayerSpec(attention=attn, mlp=config.mlp(bias=config.flag("mlp_bias", False)), norms=config.pre_norms())
    second = [
        replace(first, attention=TwoScopesSpec(local=local, reads=i, gate=f"model.gate_projections.{i}"))
        for i in range(layers)
    ]
    return config.arch(
        [first] * layers + second,
        tied=config.flag("tie_word_embeddings", False),
        layers_key=tuple(f"model.layers.{i}" for i in range(layers)) * 2,
        rules=(),
    )
