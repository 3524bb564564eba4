"""qwen: llama under GPT's names, with q, k and v in one matrix, a bias on it, and half of intermediate_size."""

from engine.errors import InvalidValue
from engine.graph.families.common import DEFAULTS, Config, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["qwen"])
    config = config.replaced(rms_norm_eps=config.number("layer_norm_epsilon"), head_dim=config.even_head_dim())
    head_dim, channels, bias = (
        config.positive("head_dim"),
        config.positive("kv_channels"),
        not config.flag("no_bias", True),
    )
    if channels != head_dim:
        raise InvalidValue("config.json kv_channels", channels, f"hidden_size / num_attention_heads = {head_dim}")
    heads, hidden = config.positive("num_attention_heads"), config.positive("intermediate_size") // 2
    names = {"qkv": "c_attn", "o": "c_proj"}
    attn = config.attention(kv_heads=heads, rope=plain_rope(head_dim, 10000.0), bias=bias, qkv_bias=True, **names)
    layer = LayerSpec(
        attention=attn,
        mlp=MlpSpec(hidden=hidden, gate="w2", up="w1", down="c_proj", bias=bias),
        norms=config.pre_norms("ln_1", "ln_2"),
        attn_key="attn",
    )
    stem, norm, head = StemSpec(key="transformer.wte"), config.rms("transformer.ln_f"), HeadSpec(tied=False, bias=bias)
    return config.arch(layer, stem=stem, norm=norm, head=head, layers_key="transformer.h", tied=False, rules=())
