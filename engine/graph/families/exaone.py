"""exaone: llama under gpt2's names."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    bias, head_dim = config.flag("attention_bias", False), config.positive("head_dim", config.even_head_dim())
    eps, count = config.number("layer_norm_epsilon"), config.positive("num_layers")
    config = config.replaced(rms_norm_eps=eps, num_hidden_layers=count)
    return config.decoder(
        config.attention(head_dim=head_dim, theta=None, o="out_proj", bias=bias),
        config.mlp(gate="c_fc_0", up="c_fc_1", down="c_proj", bias=config.flag("mlp_bias", False)),
        norms=config.pre_norms("ln_1", "ln_2"),
        attn_key="attn.attention",
        stem=StemSpec(key="transformer.wte"),
        layers_key="transformer.h",
        norm=config.rms("transformer.ln_f"),
        head=HeadSpec(tied=config.tied(True)),
        rules=(),
    )
