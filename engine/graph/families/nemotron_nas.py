"""nemotron-nas: llama whose layers differ: each mixer has its own width, is one linear map, or is absent."""

from collections.abc import Mapping
from typing import Any

from engine.graph.families.common import ArchSpec, Config, LayerSpec, MlpSpec
from engine.graph.spec import LinearSpec
from engine.kv.spec import CacheSpec

ACTS = {"silu": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_approx", "gelu_fast": "gelu_approx"}


def spec(config: Config) -> ArchSpec:
    dim, heads, head_dim = (
        config.positive("hidden_size"),
        config.positive("num_attention_heads"),
        config.even_head_dim(),
    )
    attn_bias, mlp_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    act = ACTS[config.choice("hidden_act", ACTS)]
    # mlx-lm keeps a cache, for ever empty, for a linear map in attention's place.
    unused = CacheSpec(head_dims=(head_dim, head_dim))

    def attend(block: Config) -> Any:
        kv_heads = heads // block.positive("n_heads_in_group")
        return config.attention(head_dim=head_dim, kv_heads=kv_heads, bias=attn_bias)

    def feed(block: Config) -> Any:
        width = int(2 * round(block.number("ffn_mult"), 6) * dim / 3)
        return MlpSpec(hidden=-(-width // 256) * 256, act=act, bias=mlp_bias)

    layers = []
    for i, entry in enumerate(config.each("block_configs")):
        if not isinstance(entry, Mapping):
            raise config.invalid(f"block_configs[{i}]", entry, "an object with attention and ffn")
        block = Config(entry, f"block_configs[{i}].")
        attn = _mixer(block.inner("attention"), attend, LinearSpec(bias=attn_bias, caches=(unused,)))
        mlp = _mixer(block.inner("ffn"), feed, LinearSpec(bias=mlp_bias))
        norms = config.norms("input_layernorm" if attn else None, None, "post_attention_layernorm" if mlp else None)
        layers.append(LayerSpec(attention=attn, mlp=mlp, norms=norms))
    return config.arch(layers)


def _mixer(block: Config, active: Any, linear: LinearSpec) -> Any:
    """None, the linear map, or what `active` makes of the block's entry."""
    if block.flag("no_op", False):
        return None
    return linear if block.flag("replace_with_linear", False) else active(block)
