"""exaone: llama under gpt2's names."""

from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, StemSpec


def spec(config: Config) -> ArchSpec:
    eps, bias = config.number("layer_norm_epsilon"), config.flag("attention_bias", False)
    head_dim = config.positive("head_dim", config.even_head_dim())
    turn = config.rope(head_dim, None)
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, rope=turn, o="out_proj", qkv_bias=bias, out_bias=bias),
        mlp=config.mlp(gate="c_fc_0", up="c_fc_1", down="c_proj", bias=config.flag("mlp_bias", False)),
        norms=Norms(pre_attn=config.rms("ln_1", eps=eps), pre_mlp=config.rms("ln_2", eps=eps)),
        attn_key="attn.attention",
    )
    return config.arch(
        [layer] * config.positive("num_layers"),
        stem=StemSpec(key="transformer.wte"),
        layers_key="transformer.h",
        norm=config.rms("transformer.ln_f", eps=eps),
        head=HeadSpec(tied=config.flag("tie_word_embeddings", True)),
        rules=(),
    )
