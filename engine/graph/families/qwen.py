"""qwen: llama under GPT's names, with q, k and v in one matrix, a bias on it, and half of intermediate_size."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, channels = config.even_head_dim(), config.positive("kv_channels")
    config = config.replaced(rms_norm_eps=config.number("layer_norm_epsilon"), head_dim=head_dim)
    if channels != head_dim:
        raise config.invalid("kv_channels", channels, f"hidden_size / num_attention_heads = {head_dim}")
    heads, hidden = config.positive("num_attention_heads"), config.positive("intermediate_size") // 2
    rope, bias = plain_rope(head_dim, 10000.0), not config.flag("no_bias", True)
    return config.decoder(
        config.attention(kv_heads=heads, rope=rope, bias=bias, qkv_bias=True, qkv="c_attn", o="c_proj"),
        config.mlp(hidden=hidden, gate="w2", up="w1", down="c_proj", bias=bias),
        norms=config.pre_norms("ln_1", "ln_2"),
        attn_key="attn",
        stem=StemSpec(key="transformer.wte"),
        norm=config.rms("transformer.ln_f"),
        head=HeadSpec(tied=False, bias=bias),
        layers_key="transformer.h",
        rules=(),
    )
