"""afm7: fused q, k, v; keys and values rounded to 8 bits; the last layers attend the last cache with queries only."""

from dataclasses import replace

from engine.graph.families.common import ArchSpec, Config, StemSpec, plain_rope

QK_EPS = 1e-5  # mlx's default: mlx-lm hands these norms no epsilon


def spec(config: Config) -> ArchSpec:
    dim, heads = config.positive("hidden_dim"), config.positive("num_heads")
    layers, reusing = config.positive("num_layers"), config.count("num_kv_reuse_layers")
    if reusing >= layers:
        raise config.invalid("num_kv_reuse_layers", reusing, f"an integer below num_layers={layers}")
    eps, own = config.number("rms_norm_eps", 1e-5), layers - reusing
    config = config.replaced(hidden_size=dim, num_hidden_layers=layers, rms_norm_eps=eps)
    rope = plain_rope(dim // heads, config.number("rope_theta", 50000), traditional=True)
    sizes = {"heads": heads, "head_dim": dim // heads, "kv_heads": config.positive("num_kv_heads")}
    normed, int8 = config.replaced(rms_norm_eps=QK_EPS).qk_heads("rotated"), ("quant_key_scale", "quant_value_scale")
    attn = config.attention(**sizes, rope=rope, qkv="qkv_proj", o="out_proj", qk_norm=normed, int8=int8)
    mixers = [attn] * own + [replace(attn, qkv=None, int8=None, reads=own - 1)] * reusing
    feed = config.mlp(hidden=int(dim * config.number("hidden_dim_scale_factor", 3.25)))
    keys = [f"model.layers.{i}" for i in range(own)] + [f"model.kv_reuse_layers.{i}" for i in range(reusing)]
    stem, norm = StemSpec(key="model.embedding"), config.rms("model.output_norm")
    return config.decoder(mixers, feed, tied=True, stem=stem, layers_key=tuple(keys), norm=norm, rules=())
