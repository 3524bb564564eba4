"""qwen: llama under GPT's names, with q, k and v in one matrix, a bias on it, and half of intermediate_size."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, plain_rope, pre_norms, rms
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, StemSpec

DEFAULTS = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 151936}


def spec(config: Config) -> ArchSpec:
    given = {name: config.read(name, value) for name, value in DEFAULTS.items()}
    config = config.replaced(**given, rms_norm_eps=config.number("layer_norm_epsilon", 1e-6))
    dim, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    channels, bias = config.positive("kv_channels", 128), not config.flag("no_bias", True)
    if channels * heads != dim:
        raise InvalidValue("config.json kv_channels", channels, f"hidden_size / num_attention_heads = {dim / heads:g}")
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=channels,
            kv_heads=heads,
            rope=plain_rope(channels, 10000.0),
            qkv="c_attn",
            o="c_proj",
            qkv_bias=True,
            out_bias=bias,
        ),
        mlp=MlpSpec(
            hidden=config.positive("intermediate_size", 11008) // 2, gate="w2", up="w1", down="c_proj", bias=bias
        ),
        norms=pre_norms(config, "ln_1", "ln_2"),
        attn_key="attn",
    )
    return arch(
        config,
        layer,
        tied=False,
        stem=StemSpec(key="transformer.wte"),
        norm=rms(config, "transformer.ln_f"),
        head=HeadSpec(tied=False, bias=bias),
        layers_key="transformer.h",
        rules=(),
    )
