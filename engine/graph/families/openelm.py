"""openelm: llama whose layers differ in heads and width, with q, k and v, and gate and up, in one matrix each."""

from engine.graph.families.common import DEFAULTS, Config, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, StemSpec


def _width(wanted: float, divisor: int) -> int:
    """The multiple of `divisor` near `wanted`, not more than a tenth below it."""
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["openelm"])
    dim, count, divisor = (config.positive(key) for key in ("model_dim", "num_transformer_layers", "ffn_dim_divisor"))
    config = config.replaced(hidden_size=dim, num_hidden_layers=count)
    rope = plain_rope(config.positive("head_dim"), config.number("rope_freq_constant"))
    names = {"qkv": "qkv_proj", "o": "out_proj"}
    qk_norm = config.qk_heads() if config.flag("normalize_qk_projections", True) else None
    columns = (config.each(key) for key in ("num_query_heads", "num_kv_heads", "ffn_multipliers"))
    layers = [
        LayerSpec(
            attention=config.attention(heads=heads, kv_heads=kv_heads, rope=rope, qk_norm=qk_norm, bias=False, **names),
            mlp=MlpSpec(hidden=_width(factor * dim, divisor), up="proj_1", down="proj_2", fused=True),
            norms=config.pre_norms("attn_norm", "ffn_norm"),
            attn_key="attn",
            mlp_key="ffn",
        )
        for heads, kv_heads, factor in zip(*columns, strict=True)
    ]
    stem, norm = StemSpec(key="transformer.token_embeddings"), config.rms("transformer.norm")
    head = HeadSpec(tied=config.flag("share_input_output_layers", True))
    return config.arch(layers, stem=stem, norm=norm, head=head, layers_key="transformer.layers", tied=False, rules=())
