"""openelm: llama whose layers differ in heads and width, with q, k and v, and gate and up, in one matrix each."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, plain_rope, pre_norms, qk_heads, rms
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, StemSpec


def _width(wanted: float, divisor: int) -> int:
    """The multiple of `divisor` near `wanted`, not more than a tenth below it."""
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def spec(config: Config) -> ArchSpec:
    dim, head_dim = config.positive("model_dim"), config.positive("head_dim")
    config = config.replaced(
        hidden_size=dim,
        num_hidden_layers=config.positive("num_transformer_layers"),
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
    )
    if not config.flag("ffn_with_glu", True):
        raise InvalidValue("config.json ffn_with_glu", False, ("true",))
    norms = qk_heads(config) if config.flag("normalize_qk_projections", True) else None
    rope = plain_rope(head_dim, config.number("rope_freq_constant", 10000.0))
    shapes = zip(
        config.each("num_query_heads"), config.each("num_kv_heads"), config.each("ffn_multipliers"), strict=True
    )
    layers = [
        LayerSpec(
            attention=attention(
                config,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                rope=rope,
                qk_norm=norms,
                qkv="qkv_proj",
                o="out_proj",
            ),
            mlp=MlpSpec(
                hidden=_width(factor * dim, config.positive("ffn_dim_divisor")), up="proj_1", down="proj_2", fused=True
            ),
            norms=pre_norms(config, "attn_norm", "ffn_norm"),
            attn_key="attn",
            mlp_key="ffn",
        )
        for heads, kv_heads, factor in shapes
    ]
    return arch(
        config,
        layers,
        tied=False,
        stem=StemSpec(key="transformer.token_embeddings"),
        norm=rms(config, "transformer.norm"),
        head=HeadSpec(tied=config.flag("share_input_output_layers", True)),
        layers_key="transformer.layers",
        rules=(),
    )
