"""openelm: llama whose layers differ in heads and width, with q, k and v, and gate and up, in one matrix each."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec, plain_rope


def _width(wanted: float, divisor: int) -> int:
    """The multiple of `divisor` near `wanted`, not more than a tenth below it."""
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def spec(config: Config) -> ArchSpec:
    dim, count, divisor = (config.positive(key) for key in ("model_dim", "num_transformer_layers", "ffn_dim_divisor"))
    config = config.replaced(hidden_size=dim, num_hidden_layers=count)
    rope = plain_rope(config.positive("head_dim"), config.number("rope_freq_constant"))
    normed = config.qk_heads() if config.flag("normalize_qk_projections", True) else None
    fields = {"rope": rope, "qk_norm": normed, "qkv": "qkv_proj", "o": "out_proj"}
    heads = zip(config.each("num_query_heads"), config.each("num_kv_heads"), strict=True)
    widths = [_width(factor * dim, divisor) for factor in config.each("ffn_multipliers")]
    return config.decoder(
        [config.attention(heads=queries, kv_heads=keys, **fields) for queries, keys in heads],
        [config.mlp(hidden=width, up="proj_1", down="proj_2", fused=True) for width in widths],
        norms=config.pre_norms("attn_norm", "ffn_norm"),
        attn_key="attn",
        mlp_key="ffn",
        stem=StemSpec(key="transformer.token_embeddings"),
        norm=config.rms("transformer.norm"),
        head=HeadSpec(tied=config.flag("share_input_output_layers", True)),
        layers_key="transformer.layers",
        rules=(),
    )
