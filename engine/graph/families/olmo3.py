"""olmo3: olmo2 with sliding layers, three of four unless layer_types says otherwise; only global layers scale their
rope."""

from engine.graph.families.common import (
    Config,
    arch,
    attention,
    full_every,
    layers,
    mlp,
    plain_rope,
    qk_heads,
    rope,
    rope_base,
    window_layers,
)
from engine.graph.families.olmo2 import post_norms
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim", config.positive("hidden_size") // config.positive("num_attention_heads"))
    ropes = {True: plain_rope(head_dim, rope_base(config)), False: rope(config, head_dim, None)}
    bias, norm = config.flag("attention_bias", False), qk_heads(config, "flat")
    attn = [
        attention(config, head_dim=head_dim, rope=ropes[bool(window)], bias=bias, qk_norm=norm, **window)
        for window in window_layers(config, full_every(config, 4))
    ]
    made = layers(config, attn.__getitem__, mlp(config), norms=post_norms(config))
    return arch(config, made, tied=config.flag("tie_word_embeddings", False))
