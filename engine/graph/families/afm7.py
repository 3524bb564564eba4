"""afm7: fused q, k, v; keys and values rounded to 8 bits; the last layers attend the last cache with queries only."""

from dataclasses import replace

from engine.errors import InvalidValue
from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, StemSpec

QK_EPS = 1e-5  # mlx's default: mlx-lm hands these norms no epsilon


def spec(config: Config) -> ArchSpec:
    dim, heads = config.positive("hidden_dim"), config.positive("num_heads")
    layers, reusing = config.positive("num_layers"), config.count("num_kv_reuse_layers")
    if reusing >= layers:
        raise InvalidValue("config.json num_kv_reuse_layers", reusing, f"an integer below num_layers={layers}")
    eps = config.number("rms_norm_eps", 1e-5)
    config = config.replaced(hidden_size=dim, num_hidden_layers=layers, rms_norm_eps=eps)
    attn = config.attention(
        heads=heads,
        head_dim=dim // heads,
        kv_heads=config.positive("num_kv_heads"),
        rope=plain_rope(dim // heads, config.number("rope_theta", 50000), traditional=True),
        qkv="qkv_proj",
        o="out_proj",
        qk_norm=config.replaced(rms_norm_eps=QK_EPS).qk_heads("rotated"),
        int8=("quant_key_scale", "quant_value_scale"),
    )
    feed = config.mlp(hidden=int(dim * config.number("hidden_dim_scale_factor", 3.25)))
    own = LayerSpec(attention=attn, mlp=feed, norms=config.pre_norms())
    reader = replace(own, attention=replace(attn, qkv=None, int8=None, reads=layers - reusing - 1))
    keys = [f"model.layers.{i}" for i in range(layers - reusing)]
    keys += [f"model.kv_reuse_layers.{i}" for i in range(reusing)]
    return config.arch(
        [own] * (layers - reusing) + [reader] * reusing,
        tied=True,
        stem=StemSpec(key="model.embedding"),
        layers_key=tuple(keys),
        norm=config.rms("model.output_norm"),
        rules=(),
    )
