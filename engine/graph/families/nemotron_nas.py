"""nemotron-nas: llama whose layers differ: each mixer has its own width, is one linear map, or is absent."""

from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, rms
from engine.graph.spec import ArchSpec, LayerSpec, LinearSpec, MlpSpec, Norms
from engine.kv.spec import CacheSpec

DEFAULTS = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
}
ACTIVATIONS = {"silu": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_approx", "gelu_fast": "gelu_approx"}


def _mixer(block: Any, index: int, active: Any, linear: LinearSpec) -> Any:
    """None, the linear map, or what `active` makes of the block's entry."""
    if not isinstance(block, Mapping):
        raise InvalidValue(f"config.json block_configs[{index}]", block, "an object with attention and ffn")
    if block.get("no_op"):
        return None
    return linear if block.get("replace_with_linear") else active(block)


def spec(config: Config) -> ArchSpec:
    config = config.replaced(**{name: config.read(name, value) for name, value in DEFAULTS.items()})
    dim, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    attn_bias, mlp_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    act = config.read("hidden_act", "silu")
    if act not in ACTIVATIONS:
        raise InvalidValue("config.json hidden_act", act, ACTIVATIONS)

    def attend(block: Mapping[str, Any]) -> Any:
        group = Config(block, "block_configs.attention.").positive("n_heads_in_group")
        return attention(config, head_dim=dim // heads, kv_heads=heads // group, qkv_bias=attn_bias, out_bias=attn_bias)

    def feed(block: Mapping[str, Any]) -> Any:
        width = int(2 * round(Config(block, "block_configs.ffn.").number("ffn_mult"), 6) * dim / 3)
        return MlpSpec(hidden=-(-width // 256) * 256, act=ACTIVATIONS[act], bias=mlp_bias)

    # mlx-lm keeps a cache, for ever empty, for a linear map in attention's place.
    unused = CacheSpec(head_dims=(dim // heads, dim // heads))
    layers = []
    for i, block in enumerate(config.each("block_configs")):
        attn = _mixer(block.get("attention"), i, attend, LinearSpec(bias=attn_bias, caches=(unused,)))
        mlp = _mixer(block.get("ffn"), i, feed, LinearSpec(bias=mlp_bias))
        norms = Norms(
            pre_attn=rms(config, "input_layernorm") if attn else None,
            pre_mlp=rms(config, "post_attention_layernorm") if mlp else None,
        )
        layers.append(LayerSpec(attention=attn, mlp=mlp, norms=norms))
    return arch(config, layers, tied=config.flag("tie_word_embeddings", False))
