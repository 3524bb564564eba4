"""olmo3: olmo2 with sliding layers, three of four unless layer_types says otherwise; only global layers scale their
rope."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.families.olmo2 import post_norms
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim", config.positive("hidden_size") // config.positive("num_attention_heads"))
    ropes = {True: plain_rope(head_dim, config.rope_base()), False: config.rope(head_dim, None)}
    bias, norm = config.flag("attention_bias", False), config.qk_heads("flat")
    attn = [
        config.attention(head_dim=head_dim, rope=ropes[bool(window)], bias=bias, qk_norm=norm, **window)
        for window in config.window_layers(config.full_every(4))
    ]
    made = config.layers(attn.__getitem__, config.mlp(), norms=post_norms(config))
    return config.arch(made, tied=config.flag("tie_word_embeddings", False))
